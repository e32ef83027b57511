// The operations of ../../README.md by aws-sdk-go-v2 with its default settings. Ends at the first wrong result.
package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	. "nigh/tests/sdk/checks"
)

var (
	ctx    = context.Background()
	bucket = aws.String("go-checks")
	client *s3.Client
)

// refused: the call failed with this status and, where the answer has a body to say it in, this code.
func refused(err error, status int, code string) {
	var answer *awshttp.ResponseError
	That(errors.As(err, &answer), "expected %s, found %v", code, err)
	Equal(answer.HTTPStatusCode(), status)
	var api smithy.APIError
	if code != "" {
		That(errors.As(err, &api) && api.ErrorCode() == code, "expected %s, found %v", code, err)
	}
}

func put(key string, body []byte) *s3.PutObjectOutput {
	return Must(client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: bytes.NewReader(body)}))
}

func get(key string) (*s3.GetObjectOutput, error) {
	return client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: &key})
}

func body(answer *s3.GetObjectOutput, err error) string {
	Done(err)
	defer answer.Body.Close()
	return string(Must(io.ReadAll(answer.Body)))
}

func keys(prefix string) (found []string) {
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		for _, object := range Must(pages.NextPage(ctx)).Contents {
			found = append(found, *object.Key)
		}
	}
	return found
}

func buckets() {
	Must(client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}))
	Must(client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: bucket}))
	for _, one := range Must(client.ListBuckets(ctx, &s3.ListBucketsInput{})).Buckets {
		if *one.Name == *bucket {
			OK("buckets")
			return
		}
	}
	Fail("%s is not listed", *bucket)
}

func objects() {
	for key, content := range map[string][]byte{"bytes": EveryByte(), "empty": {}} {
		done := put(key, content)
		head := Must(client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: &key}))
		Equal(*head.ContentLength, int64(len(content)))
		Equal(*head.ETag, *done.ETag)
		Equal(body(get(key)), string(content))
	}
	for range 2 {
		Must(client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: aws.String("empty")}))
	}
	_, err := get("empty")
	refused(err, 404, "NoSuchKey")
	OK("objects")
}

func ranges() {
	put("ranged", []byte("0123456789"))
	for span, expected := range map[string][2]string{
		"bytes=2-4": {"234", "bytes 2-4/10"},
		"bytes=-2":  {"89", "bytes 8-9/10"},
	} {
		got := Must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("ranged"), Range: &span}))
		Equal(*got.ContentRange, expected[1])
		Equal(body(got, nil), expected[0])
	}
	OK("range")
}

func readConditions() {
	etag, other, key := put("conditional", []byte(Hello)).ETag, aws.String(`"other"`), aws.String("conditional")
	try := func(match, except *string) error {
		_, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, IfMatch: match, IfNoneMatch: except})
		return err
	}
	Done(try(etag, nil))
	Done(try(nil, other))
	refused(try(other, nil), 412, "PreconditionFailed")
	refused(try(nil, etag), 304, "")
	OK("read-conditions")
}

func writeConditions() {
	once := func(content string) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: bucket, Key: aws.String("once"), IfNoneMatch: aws.String("*"), Body: strings.NewReader(content),
		})
		return err
	}
	Done(once("first"))
	refused(once("second"), 412, "PreconditionFailed")
	Equal(body(get("once")), "first")
	OK("write-conditions")
}

func metadata() {
	Must(client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: bucket, Key: aws.String("described"), Body: strings.NewReader(Hello),
		ContentType: aws.String("text/plain; charset=utf-8"), Metadata: map[string]string{"colour": "green"},
	}))
	head := Must(client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("described")}))
	Equal(*head.ContentType, "text/plain; charset=utf-8")
	Equal(head.Metadata, map[string]string{"colour": "green"})
	OK("metadata")
}

func copies() {
	source := aws.String(*bucket + "/described")
	Must(client.CopyObject(ctx, &s3.CopyObjectInput{Bucket: bucket, Key: aws.String("copied"), CopySource: source}))
	Must(client.CopyObject(ctx, &s3.CopyObjectInput{
		Bucket: bucket, Key: aws.String("changed"), CopySource: source, ContentType: aws.String("a/b"),
		MetadataDirective: types.MetadataDirectiveReplace, Metadata: map[string]string{"colour": "red"},
	}))
	for key, expected := range map[string][2]string{
		"copied":  {"text/plain; charset=utf-8", "green"},
		"changed": {"a/b", "red"},
	} {
		got := Must(get(key))
		Equal([2]string{*got.ContentType, got.Metadata["colour"]}, expected)
		Equal(body(got, nil), Hello)
	}
	OK("copy")
}

func listing() {
	for _, key := range []string{"tree/a", "tree/b/1", "tree/b/2", "tree/c/1"} {
		put(key, []byte(key))
	}
	page := Must(client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: bucket, Prefix: aws.String("tree/"), Delimiter: aws.String("/"),
	}))
	var found []string
	for _, object := range page.Contents {
		found = append(found, *object.Key)
	}
	for _, prefix := range page.CommonPrefixes {
		found = append(found, *prefix.Prefix)
	}
	Equal(found, []string{"tree/a", "tree/b/", "tree/c/"})
	OK("listing")
}

func pages() {
	for _, key := range ManyKeys() {
		put(key, nil)
	}
	Equal(keys("pages/"), ManyKeys())
	OK("pages")
}

func deleteMany() {
	for _, some := range [][]string{ManyKeys()[:1000], ManyKeys()[1000:]} {
		var named []types.ObjectIdentifier
		for _, key := range some {
			named = append(named, types.ObjectIdentifier{Key: &key})
		}
		done := Must(client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: bucket, Delete: &types.Delete{Objects: named}}))
		Equal([2]int{len(done.Deleted), len(done.Errors)}, [2]int{len(some), 0})
	}
	Equal(len(keys("pages/")), 0)
	OK("delete-many")
}

func multipart() {
	key := aws.String("parts")
	upload := Must(client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key})).UploadId
	var parts []types.CompletedPart
	for index, content := range TwoParts() {
		number := int32(index + 1)
		done := Must(client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: bucket, Key: key, UploadId: upload, PartNumber: &number, Body: bytes.NewReader(content),
		}))
		parts = append(parts, types.CompletedPart{ETag: done.ETag, PartNumber: &number, ChecksumCRC32: done.ChecksumCRC32})
	}
	done := Must(client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: key, UploadId: upload, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}))
	That(strings.HasSuffix(*done.ETag, `-2"`), "found %s", *done.ETag)
	That(body(get(*key)) == string(bytes.Join(TwoParts(), nil)), "other bytes came back")
	OK("multipart")
}

func abortedMultipart() {
	key := aws.String("aborted")
	upload := Must(client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key})).UploadId
	Must(client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: bucket, Key: key, UploadId: upload, PartNumber: aws.Int32(1), Body: strings.NewReader("lost"),
	}))
	Must(client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: bucket, Key: key, UploadId: upload}))
	Equal(len(Must(client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: bucket})).Uploads), 0)
	_, err := get(*key)
	refused(err, 404, "NoSuchKey")
	OK("aborted-multipart")
}

func presigned() {
	presign := s3.NewPresignClient(client)
	read := Must(presign.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("ranged")}))
	status, content := Fetch(read.Method, read.URL, "")
	Equal(status, 200)
	Equal(content, "0123456789")
	status, _ = Fetch(read.Method, strings.Replace(read.URL, "ranged", "once", 1), "")
	Equal(status, 403)
	OK("presigned-get")

	write := Must(presign.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("by url")}))
	status, content = Fetch(write.Method, write.URL, "put by url")
	That(status == 200, "%d %s", status, content)
	Equal(body(get("by url")), "put by url")
	OK("presigned-put")
}

func tagging() {
	key := aws.String("tagged")
	put(*key, []byte(Hello))
	given := []types.Tag{{Key: aws.String("a"), Value: aws.String("1")}, {Key: aws.String("grün"), Value: aws.String("x y")}}
	Must(client.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{
		Bucket: bucket, Key: key, Tagging: &types.Tagging{TagSet: given},
	}))
	found := Must(client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: bucket, Key: key})).TagSet
	sort.Slice(found, func(a, b int) bool { return *found[a].Key < *found[b].Key })
	Equal(len(found), len(given))
	for index, tag := range found {
		Equal([2]string{*tag.Key, *tag.Value}, [2]string{*given[index].Key, *given[index].Value})
	}
	Must(client.DeleteObjectTagging(ctx, &s3.DeleteObjectTaggingInput{Bucket: bucket, Key: key}))
	Equal(len(Must(client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: bucket, Key: key})).TagSet), 0)
	OK("tagging")
}

func oddKeys() {
	for _, key := range OddKeys {
		put(key, []byte(key))
	}
	listed := strings.Join(keys(""), "\n") + "\n"
	for _, key := range OddKeys {
		Equal(body(get(key)), key)
		That(strings.Count("\n"+listed, "\n"+key+"\n") == 1, "%s is not listed once", key)
	}
	OK("odd-keys")
}

func checksums() {
	key := aws.String("summed")
	Equal(*put(*key, []byte(Hello)).ChecksumCRC32, HelloCRC32)
	head := Must(client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: key, ChecksumMode: types.ChecksumModeEnabled}))
	Equal(*head.ChecksumCRC32, HelloCRC32)
	_, err := client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: bucket, Key: key, Body: strings.NewReader(Hello), ChecksumCRC32: aws.String(ZeroCRC32),
	})
	refused(err, 400, "BadDigest")
	OK("checksums")
}

func missing() {
	_, err := get("none")
	var noKey *types.NoSuchKey
	That(errors.As(err, &noKey), "found %v", err)
	_, err = client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("none")})
	var notFound *types.NotFound
	That(errors.As(err, &notFound), "found %v", err)
	_, err = client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("no-such-bucket"), Key: aws.String("none")})
	refused(err, 404, "NoSuchBucket")
	OK("missing")
}

func wrongCredentials() {
	for key, code := range map[string]string{
		os.Getenv("AWS_ACCESS_KEY_ID"): "SignatureDoesNotMatch", "UNKNOWNKEY": "InvalidAccessKeyId",
	} {
		settings := Must(config.LoadDefaultConfig(ctx,
			config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(key, "wrong", ""))))
		_, err := s3.NewFromConfig(settings).ListBuckets(ctx, &s3.ListBucketsInput{})
		refused(err, 403, code)
	}
	OK("credentials")
}

func bucketDelete() {
	_, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket})
	refused(err, 409, "BucketNotEmpty")
	for _, key := range keys("") {
		Must(client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: &key}))
	}
	Must(client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket}))
	_, err = client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: bucket})
	refused(err, 404, "")
	OK("bucket-delete")
}

func main() {
	client = s3.NewFromConfig(Must(config.LoadDefaultConfig(ctx)))
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
