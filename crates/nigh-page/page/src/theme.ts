// Light, dark, or as the system says.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEPT = "nigh-theme";

function kept(): Theme {
    try {
        const theme = localStorage.getItem(KEPT);
        return theme === "light" || theme === "dark" ? theme : "system";
    } catch {
        return "system";
    }
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
export const choice = signal<Theme>(kept());
/** What is shown. */
export const theme = signal<"light" | "dark">("light");

function show() {
    theme.value = choice.value === "system" ? (dark.matches ? "dark" : "light") : choice.value;
    document.documentElement.dataset.theme = theme.value;
}

dark.addEventListener("change", show);
show();

export function nextTheme() {
    const themes: Theme[] = ["system", "light", "dark"];
    choice.value = themes[(themes.indexOf(choice.value) + 1) % themes.length] ?? "system";
    try {
        localStorage.setItem(KEPT, choice.value);
    } catch {
        // It lasts as long as the tab then.
    }
    show();
}
