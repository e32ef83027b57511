import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.ResponseBytes;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.*;
import software.amazon.awssdk.services.s3.presigner.S3Presigner;

/** The operations of ../README.md by the AWS SDK for Java v2 with its default settings. Ends at the first wrong result. */
public class S3Checks {
    static final String BUCKET = "java-checks";
    static final List<String> ODD_KEYS = List.of("a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b");
    static final int PART_BYTES = 5 << 20;

    static final S3Client s3 = S3Client.create();

    static void ok(String operation) {
        System.out.println("ok " + operation);
    }

    static void same(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void that(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    /** The call fails with this status and, where the answer has a body to say it in, this code. */
    static void refused(int status, String code, Runnable call) {
        try {
            call.run();
        } catch (S3Exception error) {
            same(error.statusCode(), status);
            if (code != null) {
                same(error.awsErrorDetails().errorCode(), code);
            }
            return;
        }
        throw new AssertionError("expected " + code + ", but the call succeeded");
    }

    static PutObjectResponse put(String key, byte[] body, Consumer<PutObjectRequest.Builder> more) {
        var request = PutObjectRequest.builder().bucket(BUCKET).key(key);
        more.accept(request);
        return s3.putObject(request.build(), RequestBody.fromBytes(body));
    }

    static PutObjectResponse put(String key, String body) {
        return put(key, body.getBytes(StandardCharsets.UTF_8), request -> {});
    }

    static ResponseBytes<GetObjectResponse> get(String key, Consumer<GetObjectRequest.Builder> more) {
        var request = GetObjectRequest.builder().bucket(BUCKET).key(key);
        more.accept(request);
        return s3.getObjectAsBytes(request.build());
    }

    static byte[] bytes(String key) {
        return get(key, request -> {}).asByteArray();
    }

    static String text(String key) {
        return new String(bytes(key), StandardCharsets.UTF_8);
    }

    static HeadObjectResponse head(String key) {
        return s3.headObject(request -> request.bucket(BUCKET).key(key));
    }

    static List<String> keys(String prefix) {
        return s3.listObjectsV2Paginator(request -> request.bucket(BUCKET).prefix(prefix))
            .contents().stream().map(S3Object::key).toList();
    }

    static void buckets() {
        s3.createBucket(request -> request.bucket(BUCKET));
        s3.headBucket(request -> request.bucket(BUCKET));
        that(s3.listBuckets().buckets().stream().anyMatch(one -> one.name().equals(BUCKET)), "it is not listed");
        ok("buckets");
    }

    static void objects() {
        var every = new byte[1024];
        for (int index = 0; index < every.length; index++) {
            every[index] = (byte) index;
        }
        for (var object : Map.of("bytes", every, "empty", new byte[0]).entrySet()) {
            var etag = put(object.getKey(), object.getValue(), request -> {}).eTag();
            var found = head(object.getKey());
            same(found.contentLength(), (long) object.getValue().length);
            same(found.eTag(), etag);
            that(Arrays.equals(bytes(object.getKey()), object.getValue()), "other bytes came back");
        }
        for (int turn = 0; turn < 2; turn++) {
            s3.deleteObject(request -> request.bucket(BUCKET).key("empty"));
        }
        refused(404, "NoSuchKey", () -> text("empty"));
        ok("objects");
    }

    static void range() {
        put("ranged", "0123456789");
        var middle = get("ranged", request -> request.range("bytes=2-4"));
        same(middle.asUtf8String(), "234");
        same(middle.response().contentRange(), "bytes 2-4/10");
        var last = get("ranged", request -> request.range("bytes=-2"));
        same(last.asUtf8String(), "89");
        same(last.response().contentRange(), "bytes 8-9/10");
        ok("range");
    }

    static void readConditions() {
        var etag = put("conditional", "hello").eTag();
        same(get("conditional", request -> request.ifMatch(etag)).asUtf8String(), "hello");
        same(get("conditional", request -> request.ifNoneMatch("\"other\"")).asUtf8String(), "hello");
        refused(412, "PreconditionFailed", () -> get("conditional", request -> request.ifMatch("\"other\"")));
        refused(304, null, () -> get("conditional", request -> request.ifNoneMatch(etag)));
        ok("read-conditions");
    }

    static void writeConditions() {
        put("once", "first".getBytes(), request -> request.ifNoneMatch("*"));
        refused(412, "PreconditionFailed", () -> put("once", "second".getBytes(), request -> request.ifNoneMatch("*")));
        same(text("once"), "first");
        ok("write-conditions");
    }

    static void metadata() {
        put("described", "hello".getBytes(),
            request -> request.contentType("text/plain; charset=utf-8").metadata(Map.of("colour", "green")));
        var found = head("described");
        same(found.contentType(), "text/plain; charset=utf-8");
        same(found.metadata(), Map.of("colour", "green"));
        ok("metadata");
    }

    static void copy() {
        s3.copyObject(request -> request.sourceBucket(BUCKET).sourceKey("described")
            .destinationBucket(BUCKET).destinationKey("copied"));
        s3.copyObject(request -> request.sourceBucket(BUCKET).sourceKey("described")
            .destinationBucket(BUCKET).destinationKey("changed").metadataDirective(MetadataDirective.REPLACE)
            .contentType("a/b").metadata(Map.of("colour", "red")));
        var kept = get("copied", request -> {});
        same(kept.response().contentType(), "text/plain; charset=utf-8");
        same(kept.response().metadata(), Map.of("colour", "green"));
        same(kept.asUtf8String(), "hello");
        var changed = get("changed", request -> {});
        same(changed.response().contentType(), "a/b");
        same(changed.response().metadata(), Map.of("colour", "red"));
        same(changed.asUtf8String(), "hello");
        ok("copy");
    }

    static void listing() {
        for (var key : List.of("tree/a", "tree/b/1", "tree/b/2", "tree/c/1")) {
            put(key, key);
        }
        var page = s3.listObjectsV2(request -> request.bucket(BUCKET).prefix("tree/").delimiter("/"));
        same(page.contents().stream().map(S3Object::key).toList(), List.of("tree/a"));
        same(page.commonPrefixes().stream().map(CommonPrefix::prefix).toList(), List.of("tree/b/", "tree/c/"));
        ok("listing");
    }

    static void pages() {
        var expected = IntStream.range(0, 1001).mapToObj(index -> String.format("pages/%04d", index)).toList();
        expected.forEach(key -> put(key, ""));
        same(keys("pages/"), expected);
        ok("pages");

        for (var some : List.of(expected.subList(0, 1000), expected.subList(1000, 1001))) {
            var named = some.stream().map(key -> ObjectIdentifier.builder().key(key).build()).toList();
            var done = s3.deleteObjects(request -> request.bucket(BUCKET).delete(delete -> delete.objects(named)));
            same(done.deleted().size(), some.size());
            that(!done.hasErrors(), "not all were deleted: " + done.errors());
        }
        same(keys("pages/"), List.of());
        ok("delete-many");
    }

    static void multipart() {
        var upload = s3.createMultipartUpload(request -> request.bucket(BUCKET).key("parts")).uploadId();
        var whole = new byte[PART_BYTES + 1];
        Arrays.fill(whole, (byte) 'a');
        whole[PART_BYTES] = 'z';
        var bodies = List.of(Arrays.copyOf(whole, PART_BYTES), Arrays.copyOfRange(whole, PART_BYTES, PART_BYTES + 1));
        var parts = new ArrayList<CompletedPart>();
        for (var body : bodies) {
            int number = parts.size() + 1;
            var done = s3.uploadPart(
                request -> request.bucket(BUCKET).key("parts").uploadId(upload).partNumber(number),
                RequestBody.fromBytes(body));
            parts.add(CompletedPart.builder().partNumber(number).eTag(done.eTag())
                .checksumCRC32(done.checksumCRC32()).build());
        }
        var done = s3.completeMultipartUpload(request -> request.bucket(BUCKET).key("parts").uploadId(upload)
            .multipartUpload(complete -> complete.parts(parts)));
        that(done.eTag().endsWith("-2\""), done.eTag());
        that(Arrays.equals(bytes("parts"), whole), "other bytes came back");
        ok("multipart");
    }

    static void abortedMultipart() {
        var upload = s3.createMultipartUpload(request -> request.bucket(BUCKET).key("aborted")).uploadId();
        s3.uploadPart(request -> request.bucket(BUCKET).key("aborted").uploadId(upload).partNumber(1),
            RequestBody.fromString("lost"));
        s3.abortMultipartUpload(request -> request.bucket(BUCKET).key("aborted").uploadId(upload));
        same(s3.listMultipartUploads(request -> request.bucket(BUCKET)).uploads(), List.of());
        refused(404, "NoSuchKey", () -> text("aborted"));
        ok("aborted-multipart");
    }

    static HttpURLConnection open(URL url) throws Exception {
        return (HttpURLConnection) url.openConnection();
    }

    static void presigned() throws Exception {
        try (var presigner = S3Presigner.create()) {
            var read = presigner.presignGetObject(request -> request.signatureDuration(Duration.ofHours(1))
                .getObjectRequest(object -> object.bucket(BUCKET).key("ranged"))).url();
            try (var answer = open(read).getInputStream()) {
                same(new String(answer.readAllBytes(), StandardCharsets.UTF_8), "0123456789");
            }
            same(open(new URL(read.toString().replace("ranged", "once"))).getResponseCode(), 403);
            ok("presigned-get");

            var write = presigner.presignPutObject(request -> request.signatureDuration(Duration.ofHours(1))
                .putObjectRequest(object -> object.bucket(BUCKET).key("by url")));
            var put = open(write.url());
            put.setRequestMethod("PUT");
            put.setDoOutput(true);
            // HttpURLConnection adds a type of its own where there is none.
            put.setRequestProperty("Content-Type", "text/plain");
            try (var body = put.getOutputStream()) {
                body.write("put by url".getBytes());
            }
            same(put.getResponseCode(), 200);
            same(text("by url"), "put by url");
            ok("presigned-put");
        }
    }

    static void tagging() {
        put("tagged", "hello");
        var given = List.of(
            Tag.builder().key("a").value("1").build(), Tag.builder().key("grün").value("x y").build());
        s3.putObjectTagging(request -> request.bucket(BUCKET).key("tagged").tagging(tags -> tags.tagSet(given)));
        var found = s3.getObjectTagging(request -> request.bucket(BUCKET).key("tagged")).tagSet();
        same(found.stream().sorted((a, b) -> a.key().compareTo(b.key())).toList(), given);
        s3.deleteObjectTagging(request -> request.bucket(BUCKET).key("tagged"));
        same(s3.getObjectTagging(request -> request.bucket(BUCKET).key("tagged")).tagSet(), List.of());
        ok("tagging");
    }

    static void oddKeys() {
        ODD_KEYS.forEach(key -> put(key, key));
        var listed = keys("");
        for (var key : ODD_KEYS) {
            same(text(key), key);
            same(Collections.frequency(listed, key), 1);
        }
        ok("odd-keys");
    }

    static void checksums() {
        same(put("summed", "hello").checksumCRC32(), "NhCmhg==");
        var found = s3.headObject(request -> request.bucket(BUCKET).key("summed").checksumMode(ChecksumMode.ENABLED));
        same(found.checksumCRC32(), "NhCmhg==");
        refused(400, "BadDigest", () -> put("summed", "hello".getBytes(), request -> request.checksumCRC32("AAAAAA==")));
        ok("checksums");
    }

    static void missing() {
        try {
            text("none");
            throw new AssertionError("it was there");
        } catch (NoSuchKeyException expected) {
            same(expected.statusCode(), 404);
        }
        try {
            s3.getObjectAsBytes(request -> request.bucket("no-such-bucket").key("none"));
            throw new AssertionError("it was there");
        } catch (NoSuchBucketException expected) {
            same(expected.statusCode(), 404);
        }
        refused(404, null, () -> head("none"));
        ok("missing");
    }

    static void credentials() {
        for (var wrong : Map.of(System.getenv("AWS_ACCESS_KEY_ID"), "SignatureDoesNotMatch",
                "UNKNOWNKEY", "InvalidAccessKeyId").entrySet()) {
            var provider = StaticCredentialsProvider.create(AwsBasicCredentials.create(wrong.getKey(), "wrong"));
            try (var client = S3Client.builder().credentialsProvider(provider).build()) {
                refused(403, wrong.getValue(), client::listBuckets);
            }
        }
        ok("credentials");
    }

    static void bucketDelete() {
        refused(409, "BucketNotEmpty", () -> s3.deleteBucket(request -> request.bucket(BUCKET)));
        keys("").forEach(key -> s3.deleteObject(request -> request.bucket(BUCKET).key(key)));
        s3.deleteBucket(request -> request.bucket(BUCKET));
        refused(404, null, () -> s3.headBucket(request -> request.bucket(BUCKET)));
        ok("bucket-delete");
    }

    public static void main(String[] arguments) throws Exception {
        buckets();
        objects();
        range();
        readConditions();
        writeConditions();
        metadata();
        copy();
        listing();
        pages();
        multipart();
        abortedMultipart();
        presigned();
        tagging();
        oddKeys();
        checksums();
        missing();
        credentials();
        bucketDelete();
    }
}
