// A page that is open while its node ends and comes back: says `open`, `cut` and `back` when it shows that.
//
//     node restart.mjs URL LINK
import { Findings, launch, open, show, signIn } from "./browser.mjs";

const [base, link] = process.argv.slice(2);
const findings = new Findings();
const browser = await launch();
try {
    const page = await open(browser, base, "light", findings, await signIn(browser, link));
    await show(page, "#/hierarchy");
    console.log("open");
    await page.getByText("Cut off").first().waitFor({ timeout: 60_000 });
    // What was there is still shown, as old.
    await page.locator(".old .level").first().waitFor();
    console.log("cut");
    // Sessions are in the node's memory: the new node asks who it is.
    await page.getByLabel("Access key").waitFor({ timeout: 60_000 });
    console.log("back");
} finally {
    await browser.close();
}
