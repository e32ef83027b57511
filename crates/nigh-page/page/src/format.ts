// Figures for people: short, with a unit, and of the same width where they change.

export function bytes(count: number | undefined | null): string {
    if (count === undefined || count === null) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit < units.length - 1) {
        count /= 1024;
        unit += 1;
    }
    return `${digits(count, unit)} ${units[unit]}`;
}

function digits(value: number, unit: number): string {
    if (unit === 0 || value >= 100) return String(Math.round(value));
    return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A length of time that is given in microseconds. */
export function span(micros: number | undefined | null): string {
    if (micros === undefined || micros === null) return "–";
    if (micros < 1000) return `${Math.round(micros)} µs`;
    if (micros < 1e6) return `${short(micros / 1e3)} ms`;
    if (micros < 60e6) return `${short(micros / 1e6)} s`;
    return age(micros / 1e3);
}

function short(value: number): string {
    return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A length of time that is given in milliseconds, in its two largest units. */
export function age(millis: number | undefined | null): string {
    if (millis === undefined || millis === null) return "–";
    const seconds = Math.max(0, Math.floor(millis / 1000));
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
    return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function count(value: number | undefined | null): string {
    if (value === undefined || value === null) return "–";
    return Math.round(value).toLocaleString("en");
}

/** A rate: occurrences a second. */
export function rate(perSecond: number): string {
    if (!Number.isFinite(perSecond) || perSecond <= 0) return "0/s";
    if (perSecond < 1) return `${short(perSecond * 60)}/min`;
    return `${short(perSecond)}/s`;
}

export function percent(part: number, whole: number): string {
    return whole > 0 ? `${((100 * part) / whole).toFixed(part / whole > 0.0995 ? 0 : 1)} %` : "–";
}

/** The local time of day, with the date if it is not today's. */
export function clock(millis: number | string | undefined | null): string {
    if (millis === undefined || millis === null) return "–";
    const date = new Date(millis);
    const time = date.toLocaleTimeString("en-GB");
    return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString("sv")} ${time}`;
}

/** The beginning of an id, enough to tell it from others on the page. */
export function shortId(id: string): string {
    return id.length > 13 ? `…${id.slice(-8)}` : id;
}

export function version(version: { epoch: number; sequence: number } | undefined | null): string {
    return version ? `${version.epoch}.${version.sequence}` : "–";
}
