// JSON Merge Patch (RFC 7396). What does not change keeps its identity, so unchanged parts are not drawn again.

export type Json = unknown;

export function apply(target: Json, patch: Json): Json {
    if (!isObject(patch)) return patch;
    const result: Record<string, Json> = isObject(target) ? { ...target } : {};
    for (const [name, change] of Object.entries(patch)) {
        if (change === null) delete result[name];
        else result[name] = apply(result[name], change);
    }
    return result;
}

function isObject(value: Json): value is Record<string, Json> {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
