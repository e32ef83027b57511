// The operations of ../../README.md by minio-go with its default settings. Ends at the first wrong result.
package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"

	. "nigh/tests/sdk/checks"
)

const bucket = "minio-go-checks"

var (
	ctx      = context.Background()
	endpoint = Must(url.Parse(os.Getenv("AWS_ENDPOINT_URL")))
	client   = connect(credentials.NewEnvAWS(), false)
)

func connect(who *credentials.Credentials, trailers bool) *minio.Client {
	return Must(minio.New(endpoint.Host, &minio.Options{
		Creds: who, Secure: endpoint.Scheme == "https", TrailingHeaders: trailers,
	}))
}

// refused: the call failed with this status and this code (the SDK names one even where the answer has no body).
func refused(err error, status int, code string) {
	found := minio.ToErrorResponse(err)
	That(found.StatusCode == status && found.Code == code, "expected %d %s, found %d %s: %v",
		status, code, found.StatusCode, found.Code, err)
}

func put(key string, content []byte) minio.UploadInfo {
	return Must(client.PutObject(ctx, bucket, key, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{}))
}

// read returns what the object holds; the SDK sends the request at the first read.
func read(key string, options minio.GetObjectOptions) (string, error) {
	object, err := client.GetObject(ctx, bucket, key, options)
	if err != nil {
		return "", err
	}
	defer object.Close()
	content, err := io.ReadAll(object)
	return string(content), err
}

func body(key string) string { return Must(read(key, minio.GetObjectOptions{})) }

func keys(options minio.ListObjectsOptions) (found []string) {
	for object := range client.ListObjects(ctx, bucket, options) {
		Done(object.Err)
		found = append(found, object.Key)
	}
	return found
}

func buckets() {
	Done(client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}))
	That(Must(client.BucketExists(ctx, bucket)), "the bucket was made and does not exist")
	for _, one := range Must(client.ListBuckets(ctx)) {
		if one.Name == bucket {
			OK("buckets")
			return
		}
	}
	Fail("%s is not listed", bucket)
}

func objects() {
	for key, content := range map[string][]byte{"bytes": EveryByte(), "empty": {}} {
		done := put(key, content)
		head := Must(client.StatObject(ctx, bucket, key, minio.StatObjectOptions{}))
		Equal(head.Size, int64(len(content)))
		Equal(head.ETag, done.ETag)
		Equal(body(key), string(content))
	}
	for range 2 {
		Done(client.RemoveObject(ctx, bucket, "empty", minio.RemoveObjectOptions{}))
	}
	_, err := read("empty", minio.GetObjectOptions{})
	refused(err, 404, "NoSuchKey")
	OK("objects")
}

func ranges() {
	put("ranged", []byte("0123456789"))
	for expected, span := range map[string][2]int64{"234": {2, 4}, "89": {0, -2}} {
		var options minio.GetObjectOptions
		Done(options.SetRange(span[0], span[1]))
		Equal(Must(read("ranged", options)), expected)
	}
	OK("range")
}

func readConditions() {
	etag := put("conditional", []byte(Hello)).ETag
	try := func(set func(*minio.GetObjectOptions, string) error, etag string) error {
		var options minio.GetObjectOptions
		Done(set(&options, etag))
		_, err := read("conditional", options)
		return err
	}
	Done(try((*minio.GetObjectOptions).SetMatchETag, etag))
	Done(try((*minio.GetObjectOptions).SetMatchETagExcept, "other"))
	refused(try((*minio.GetObjectOptions).SetMatchETag, "other"), 412, "PreconditionFailed")
	Equal(minio.ToErrorResponse(try((*minio.GetObjectOptions).SetMatchETagExcept, etag)).StatusCode, 304)
	OK("read-conditions")
}

func writeConditions() {
	once := func(content string) error {
		var options minio.PutObjectOptions
		options.SetMatchETagExcept("*")
		_, err := client.PutObject(ctx, bucket, "once", strings.NewReader(content), int64(len(content)), options)
		return err
	}
	Done(once("first"))
	refused(once("second"), 412, "PreconditionFailed")
	Equal(body("once"), "first")
	OK("write-conditions")
}

func metadata() {
	Must(client.PutObject(ctx, bucket, "described", strings.NewReader(Hello), int64(len(Hello)), minio.PutObjectOptions{
		ContentType: "text/plain; charset=utf-8", UserMetadata: map[string]string{"colour": "green"},
	}))
	head := Must(client.StatObject(ctx, bucket, "described", minio.StatObjectOptions{}))
	Equal([2]string{head.ContentType, head.UserMetadata["Colour"]}, [2]string{"text/plain; charset=utf-8", "green"})
	OK("metadata")
}

func copies() {
	source := minio.CopySrcOptions{Bucket: bucket, Object: "described"}
	Must(client.CopyObject(ctx, minio.CopyDestOptions{Bucket: bucket, Object: "copied"}, source))
	Must(client.CopyObject(ctx, minio.CopyDestOptions{
		Bucket: bucket, Object: "changed", ContentType: "a/b", ReplaceMetadata: true,
		UserMetadata: map[string]string{"colour": "red"},
	}, source))
	for key, expected := range map[string][2]string{
		"copied":  {"text/plain; charset=utf-8", "green"},
		"changed": {"a/b", "red"},
	} {
		head := Must(client.StatObject(ctx, bucket, key, minio.StatObjectOptions{}))
		Equal([2]string{head.ContentType, head.UserMetadata["Colour"]}, expected)
		Equal(body(key), Hello)
	}
	OK("copy")
}

func listing() {
	for _, key := range []string{"tree/a", "tree/b/1", "tree/b/2", "tree/c/1"} {
		put(key, []byte(key))
	}
	Equal(keys(minio.ListObjectsOptions{Prefix: "tree/"}), []string{"tree/a", "tree/b/", "tree/c/"})
	OK("listing")
}

func pages() {
	for _, key := range ManyKeys() {
		put(key, nil)
	}
	Equal(keys(minio.ListObjectsOptions{Prefix: "pages/"}), ManyKeys())
	OK("pages")
}

func deleteMany() {
	named := make(chan minio.ObjectInfo)
	go func() {
		defer close(named)
		for _, key := range ManyKeys() {
			named <- minio.ObjectInfo{Key: key}
		}
	}()
	for failed := range client.RemoveObjects(ctx, bucket, named, minio.RemoveObjectsOptions{}) {
		Fail("%s: %v", failed.ObjectName, failed.Err)
	}
	Equal(len(keys(minio.ListObjectsOptions{Prefix: "pages/"})), 0)
	OK("delete-many")
}

func multipart() {
	content := bytes.Join(TwoParts(), nil)
	done := Must(client.PutObject(ctx, bucket, "parts", bytes.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{PartSize: PartBytes}))
	That(strings.HasSuffix(done.ETag, "-2"), "found %s", done.ETag)
	That(body("parts") == string(content), "other bytes came back")
	// Without a size the SDK cannot know that there is one part alone, and buffers instead of signing a stream.
	streamed := Must(client.PutObject(ctx, bucket, "streamed", io.MultiReader(bytes.NewReader(content)), -1,
		minio.PutObjectOptions{PartSize: PartBytes}))
	That(strings.HasSuffix(streamed.ETag, "-2"), "found %s", streamed.ETag)
	That(body("streamed") == string(content), "other bytes came back")
	OK("multipart")
}

func abortedMultipart() {
	core := minio.Core{Client: client}
	upload := Must(core.NewMultipartUpload(ctx, bucket, "aborted", minio.PutObjectOptions{}))
	Must(core.PutObjectPart(ctx, bucket, "aborted", upload, 1, strings.NewReader("lost"), 4, minio.PutObjectPartOptions{}))
	Done(core.AbortMultipartUpload(ctx, bucket, "aborted", upload))
	for left := range client.ListIncompleteUploads(ctx, bucket, "", true) {
		Fail("left: %s: %v", left.Key, left.Err)
	}
	_, err := read("aborted", minio.GetObjectOptions{})
	refused(err, 404, "NoSuchKey")
	OK("aborted-multipart")
}

func presigned() {
	get := Must(client.PresignedGetObject(ctx, bucket, "ranged", time.Hour, nil)).String()
	status, content := Fetch(http.MethodGet, get, "")
	Equal(status, 200)
	Equal(content, "0123456789")
	status, _ = Fetch(http.MethodGet, strings.Replace(get, "ranged", "once", 1), "")
	Equal(status, 403)
	OK("presigned-get")

	write := Must(client.PresignedPutObject(ctx, bucket, "by url", time.Hour)).String()
	status, content = Fetch(http.MethodPut, write, "put by url")
	That(status == 200, "%d %s", status, content)
	Equal(body("by url"), "put by url")
	OK("presigned-put")
}

func tagging() {
	put("tagged", []byte(Hello))
	// The SDK itself refuses tags beyond ASCII.
	given := map[string]string{"a": "1", "b c": "x y"}
	Done(client.PutObjectTagging(ctx, bucket, "tagged", Must(tags.MapToObjectTags(given)), minio.PutObjectTaggingOptions{}))
	Equal(Must(client.GetObjectTagging(ctx, bucket, "tagged", minio.GetObjectTaggingOptions{})).ToMap(), given)
	Done(client.RemoveObjectTagging(ctx, bucket, "tagged", minio.RemoveObjectTaggingOptions{}))
	Equal(Must(client.GetObjectTagging(ctx, bucket, "tagged", minio.GetObjectTaggingOptions{})).Count(), 0)
	OK("tagging")
}

func oddKeys() {
	for _, key := range OddKeys {
		put(key, []byte(key))
	}
	listed := strings.Join(keys(minio.ListObjectsOptions{Recursive: true}), "\n") + "\n"
	for _, key := range OddKeys {
		Equal(body(key), key)
		That(strings.Count("\n"+listed, "\n"+key+"\n") == 1, "%s is not listed once", key)
	}
	OK("odd-keys")
}

// checksums: the SDK sends them in trailers, once it is told that the server takes these.
func checksums() {
	trailing := connect(credentials.NewEnvAWS(), true)
	Must(trailing.PutObject(ctx, bucket, "summed", strings.NewReader(Hello), int64(len(Hello)),
		minio.PutObjectOptions{Checksum: minio.ChecksumCRC32C}))
	head := Must(trailing.StatObject(ctx, bucket, "summed", minio.StatObjectOptions{Checksum: true}))
	Equal(head.ChecksumCRC32C, HelloCRC32C)
	content := bytes.Join(TwoParts(), nil)
	Must(trailing.PutObject(ctx, bucket, "summed parts", bytes.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{PartSize: PartBytes}))
	head = Must(trailing.StatObject(ctx, bucket, "summed parts", minio.StatObjectOptions{Checksum: true}))
	That(strings.HasSuffix(head.ChecksumCRC32C, "-2"), "found %q", head.ChecksumCRC32C)
	That(body("summed parts") == string(content), "other bytes came back")
	wrong := minio.PutObjectOptions{UserMetadata: map[string]string{"x-amz-checksum-crc32c": ZeroCRC32}}
	_, err := trailing.PutObject(ctx, bucket, "summed", strings.NewReader(Hello), int64(len(Hello)), wrong)
	refused(err, 400, "BadDigest")
	OK("checksums")
}

func missing() {
	_, err := read("none", minio.GetObjectOptions{})
	refused(err, 404, minio.NoSuchKey)
	_, err = client.StatObject(ctx, bucket, "none", minio.StatObjectOptions{})
	refused(err, 404, minio.NoSuchKey)
	_, err = client.StatObject(ctx, "no-such-bucket", "none", minio.StatObjectOptions{})
	refused(err, 404, minio.NoSuchBucket)
	That(!Must(client.BucketExists(ctx, "no-such-bucket")), "a bucket that was never made exists")
	OK("missing")
}

func wrongCredentials() {
	for key, code := range map[string]string{
		os.Getenv("AWS_ACCESS_KEY_ID"): minio.SignatureDoesNotMatch, "UNKNOWNKEY": minio.InvalidAccessKeyID,
	} {
		_, err := connect(credentials.NewStaticV4(key, "wrong", ""), false).ListBuckets(ctx)
		refused(err, 403, code)
	}
	OK("credentials")
}

func bucketDelete() {
	refused(client.RemoveBucket(ctx, bucket), 409, "BucketNotEmpty")
	for _, key := range keys(minio.ListObjectsOptions{Recursive: true}) {
		Done(client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{}))
	}
	Done(client.RemoveBucket(ctx, bucket))
	That(!Must(client.BucketExists(ctx, bucket)), "the bucket was removed and still exists")
	OK("bucket-delete")
}

func main() {
	buckets()
	objects()
	ranges()
	readConditions()
	writeConditions()
	metadata()
	copies()
	listing()
	pages()
	deleteMany()
	multipart()
	abortedMultipart()
	presigned()
	tagging()
	oddKeys()
	checksums()
	missing()
	wrongCredentials()
	bucketDelete()
}
