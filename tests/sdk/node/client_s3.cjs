// The operations of ../README.md by @aws-sdk/client-s3 with its default settings. Ends at the first wrong result.
"use strict";
const assert = require("node:assert/strict");
const s3 = require("@aws-sdk/client-s3");
const { getSignedUrl } = require("@aws-sdk/s3-request-presigner");

const Bucket = "node-checks";
const ODD_KEYS = ["a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b"];
const PART_BYTES = 5 << 20;

const client = new s3.S3Client();
const ok = (operation) => console.log(`ok ${operation}`);
const put = (Key, Body, more = {}) => client.send(new s3.PutObjectCommand({ Bucket, Key, Body, ...more }));
const get = (Key, more = {}) => client.send(new s3.GetObjectCommand({ Bucket, Key, ...more }));
const head = (Key, more = {}) => client.send(new s3.HeadObjectCommand({ Bucket, Key, ...more }));
const read = async (Key, more) => Buffer.from(await (await get(Key, more)).Body.transformToByteArray());
const text = async (Key, more) => (await read(Key, more)).toString();

/** The call fails with this status and, where the answer has a body to say it in, this code. */
async function refused(status, code, call) {
  const error = await call.then(
    () => assert.fail(`expected ${code}, but the call succeeded`),
    (error) => error,
  );
  assert.equal(error.$metadata?.httpStatusCode, status, error);
  if (code) assert.equal(error.name, code);
  return error;
}

async function keys(Prefix) {
  const found = [];
  for await (const page of s3.paginateListObjectsV2({ client }, { Bucket, Prefix })) {
    found.push(...(page.Contents ?? []).map((object) => object.Key));
  }
  return found;
}

const checks = {
  async buckets() {
    await client.send(new s3.CreateBucketCommand({ Bucket }));
    await client.send(new s3.HeadBucketCommand({ Bucket }));
    const listed = await client.send(new s3.ListBucketsCommand());
    assert(listed.Buckets.some((one) => one.Name === Bucket));
    ok("buckets");
  },

  async objects() {
    const bytes = Buffer.from(Array.from({ length: 1024 }, (_, index) => index % 256));
    for (const [key, body] of [["bytes", bytes], ["empty", Buffer.alloc(0)]]) {
      const { ETag } = await put(key, body);
      const found = await head(key);
      assert.deepEqual([found.ContentLength, found.ETag], [body.length, ETag]);
      assert.deepEqual(await read(key), body);
    }
    for (const _ of [1, 2]) await client.send(new s3.DeleteObjectCommand({ Bucket, Key: "empty" }));
    await refused(404, "NoSuchKey", get("empty"));
    ok("objects");
  },

  async range() {
    await put("ranged", "0123456789");
    for (const [Range, expected, place] of [
      ["bytes=2-4", "234", "bytes 2-4/10"],
      ["bytes=-2", "89", "bytes 8-9/10"],
    ]) {
      const got = await get("ranged", { Range });
      assert.equal(got.ContentRange, place);
      assert.equal(await got.Body.transformToString(), expected);
    }
    ok("range");
  },

  async readConditions() {
    const { ETag } = await put("conditional", "hello");
    assert.equal(await text("conditional", { IfMatch: ETag }), "hello");
    assert.equal(await text("conditional", { IfNoneMatch: '"other"' }), "hello");
    await refused(412, "PreconditionFailed", get("conditional", { IfMatch: '"other"' }));
    await refused(304, undefined, get("conditional", { IfNoneMatch: ETag }));
    ok("read-conditions");
  },

  async writeConditions() {
    await put("once", "first", { IfNoneMatch: "*" });
    await refused(412, "PreconditionFailed", put("once", "second", { IfNoneMatch: "*" }));
    assert.equal(await text("once"), "first");
    ok("write-conditions");
  },

  async metadata() {
    const given = { ContentType: "text/plain; charset=utf-8", Metadata: { colour: "green" } };
    await put("described", "hello", given);
    const { ContentType, Metadata } = await head("described");
    assert.deepEqual({ ContentType, Metadata }, given);
    ok("metadata");
  },

  async copy() {
    const copy = (Key, more) =>
      client.send(new s3.CopyObjectCommand({ Bucket, Key, CopySource: `${Bucket}/described`, ...more }));
    const changed = { ContentType: "a/b", Metadata: { colour: "red" } };
    await copy("copied", {});
    await copy("changed", { MetadataDirective: "REPLACE", ...changed });
    const kept = { ContentType: "text/plain; charset=utf-8", Metadata: { colour: "green" } };
    for (const [key, expected] of [["copied", kept], ["changed", changed]]) {
      const got = await get(key);
      assert.deepEqual({ ContentType: got.ContentType, Metadata: got.Metadata }, expected);
      assert.equal(await got.Body.transformToString(), "hello");
    }
    ok("copy");
  },

  async listing() {
    for (const key of ["tree/a", "tree/b/1", "tree/b/2", "tree/c/1"]) await put(key, key);
    const page = await client.send(new s3.ListObjectsV2Command({ Bucket, Prefix: "tree/", Delimiter: "/" }));
    assert.deepEqual(page.Contents.map((object) => object.Key), ["tree/a"]);
    assert.deepEqual(page.CommonPrefixes.map((one) => one.Prefix), ["tree/b/", "tree/c/"]);
    ok("listing");
  },

  async pages() {
    const expected = Array.from({ length: 1001 }, (_, index) => `pages/${String(index).padStart(4, "0")}`);
    for (let at = 0; at < expected.length; at += 16) {
      await Promise.all(expected.slice(at, at + 16).map((key) => put(key, "x")));
    }
    assert.deepEqual(await keys("pages/"), expected);
    ok("pages");

    for (const some of [expected.slice(0, 1000), expected.slice(1000)]) {
      const Delete = { Objects: some.map((Key) => ({ Key })) };
      const done = await client.send(new s3.DeleteObjectsCommand({ Bucket, Delete }));
      assert.deepEqual([done.Deleted.length, done.Errors], [some.length, undefined]);
    }
    assert.deepEqual(await keys("pages/"), []);
    ok("delete-many");
  },

  async multipart() {
    const at = { Bucket, Key: "parts" };
    at.UploadId = (await client.send(new s3.CreateMultipartUploadCommand(at))).UploadId;
    const bodies = [Buffer.alloc(PART_BYTES, "a"), Buffer.from("z")];
    const Parts = [];
    for (const [index, Body] of bodies.entries()) {
      const PartNumber = index + 1;
      const { ETag, ChecksumCRC32 } = await client.send(new s3.UploadPartCommand({ ...at, PartNumber, Body }));
      Parts.push({ PartNumber, ETag, ChecksumCRC32 });
    }
    const done = await client.send(new s3.CompleteMultipartUploadCommand({ ...at, MultipartUpload: { Parts } }));
    assert.match(done.ETag, /-2"$/);
    assert((await read("parts")).equals(Buffer.concat(bodies)), "other bytes came back");
    ok("multipart");
  },

  async abortedMultipart() {
    const at = { Bucket, Key: "aborted" };
    at.UploadId = (await client.send(new s3.CreateMultipartUploadCommand(at))).UploadId;
    await client.send(new s3.UploadPartCommand({ ...at, PartNumber: 1, Body: "lost" }));
    await client.send(new s3.AbortMultipartUploadCommand(at));
    assert.equal((await client.send(new s3.ListMultipartUploadsCommand({ Bucket }))).Uploads, undefined);
    await refused(404, "NoSuchKey", get("aborted"));
    ok("aborted-multipart");
  },

  async presigned() {
    const url = await getSignedUrl(client, new s3.GetObjectCommand({ Bucket, Key: "ranged" }));
    assert.equal(await (await fetch(url)).text(), "0123456789");
    assert.equal((await fetch(url.replace("ranged", "once"))).status, 403);
    ok("presigned-get");

    const place = await getSignedUrl(client, new s3.PutObjectCommand({ Bucket, Key: "by url" }));
    const done = await fetch(place, { method: "PUT", body: "put by url" });
    assert.equal(done.status, 200, await done.text());
    assert.equal(await text("by url"), "put by url");
    ok("presigned-put");
  },

  async tagging() {
    await put("tagged", "hello");
    const at = { Bucket, Key: "tagged" };
    const TagSet = [{ Key: "a", Value: "1" }, { Key: "grün", Value: "x y" }];
    await client.send(new s3.PutObjectTaggingCommand({ ...at, Tagging: { TagSet } }));
    const found = (await client.send(new s3.GetObjectTaggingCommand(at))).TagSet;
    assert.deepEqual(found.sort((a, b) => (a.Key < b.Key ? -1 : 1)), TagSet);
    await client.send(new s3.DeleteObjectTaggingCommand(at));
    assert.deepEqual((await client.send(new s3.GetObjectTaggingCommand(at))).TagSet, []);
    ok("tagging");
  },

  async oddKeys() {
    for (const key of ODD_KEYS) await put(key, key);
    const listed = await keys("");
    for (const key of ODD_KEYS) {
      assert.equal(await text(key), key);
      assert.equal(listed.filter((found) => found === key).length, 1, key);
    }
    ok("odd-keys");
  },

  async checksums() {
    assert.equal((await put("summed", "hello")).ChecksumCRC32, "NhCmhg==");
    assert.equal((await head("summed", { ChecksumMode: "ENABLED" })).ChecksumCRC32, "NhCmhg==");
    await refused(400, "BadDigest", put("summed", "hello", { ChecksumCRC32: "AAAAAA==" }));
    ok("checksums");
  },

  async missing() {
    assert((await refused(404, "NoSuchKey", get("none"))) instanceof s3.NoSuchKey);
    assert((await refused(404, "NotFound", head("none"))) instanceof s3.NotFound);
    const elsewhere = new s3.GetObjectCommand({ Bucket: "no-such-bucket", Key: "none" });
    await refused(404, "NoSuchBucket", client.send(elsewhere));
    ok("missing");
  },

  async credentials() {
    for (const [accessKeyId, code] of [
      [process.env.AWS_ACCESS_KEY_ID, "SignatureDoesNotMatch"],
      ["UNKNOWNKEY", "InvalidAccessKeyId"],
    ]) {
      const wrong = new s3.S3Client({ credentials: { accessKeyId, secretAccessKey: "wrong" } });
      await refused(403, code, wrong.send(new s3.ListBucketsCommand()));
    }
    ok("credentials");
  },

  async bucketDelete() {
    await refused(409, "BucketNotEmpty", client.send(new s3.DeleteBucketCommand({ Bucket })));
    for (const Key of await keys("")) await client.send(new s3.DeleteObjectCommand({ Bucket, Key }));
    await client.send(new s3.DeleteBucketCommand({ Bucket }));
    await refused(404, "NotFound", client.send(new s3.HeadBucketCommand({ Bucket })));
    ok("bucket-delete");
  },
};

(async () => {
  for (const check of Object.values(checks)) await check();
})().catch((error) => {
  console.error("FAILED:", error);
  process.exit(1);
});
