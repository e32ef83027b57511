//! The operations of ../README.md by aws-sdk-s3 with its default settings. Ends at the first wrong result.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::RequestId;
use aws_sdk_s3::presigning::{PresignedRequest, PresigningConfig};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    ChecksumMode, CompletedMultipartUpload, CompletedPart, Delete, MetadataDirective, ObjectIdentifier, Tag, Tagging,
};

const BUCKET: &str = "rust-checks";
const ODD_KEYS: [&str; 7] = ["a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b"];
const PART_BYTES: usize = 5 << 20;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The call failed with this status and, where the answer has a body to say it in, this code.
fn refused<T, E>(answer: Result<T, SdkError<E>>, status: u16, code: &str)
where
    SdkError<E>: ProvideErrorMetadata + RequestId,
    E: std::fmt::Debug,
{
    let Err(error) = answer else { panic!("expected {code}, but the call succeeded") };
    let found = error.raw_response().map(|raw| raw.status().as_u16());
    assert_eq!(found, Some(status), "{error:?}");
    assert_eq!(error.code().unwrap_or_default(), code, "{error:?}");
}

fn ok(operation: &str) {
    println!("ok {operation}");
}

struct Checks {
    s3: Client,
    shared: aws_config::SdkConfig,
}

impl Checks {
    async fn put(&self, key: &str, body: impl Into<Vec<u8>>) -> Outcome<String> {
        let body = ByteStream::from(body.into());
        let done = self.s3.put_object().bucket(BUCKET).key(key).body(body).send().await?;
        Ok(done.e_tag.unwrap_or_default())
    }

    async fn read(&self, key: &str) -> Outcome<Vec<u8>> {
        let got = self.s3.get_object().bucket(BUCKET).key(key).send().await?;
        Ok(got.body.collect().await?.to_vec())
    }

    async fn keys(&self, prefix: &str) -> Outcome<Vec<String>> {
        let mut pages = self.s3.list_objects_v2().bucket(BUCKET).prefix(prefix).into_paginator().send();
        let mut keys = Vec::new();
        while let Some(page) = pages.next().await {
            keys.extend(page?.contents.unwrap_or_default().into_iter().filter_map(|object| object.key));
        }
        Ok(keys)
    }

    async fn buckets(&self) -> Outcome {
        self.s3.create_bucket().bucket(BUCKET).send().await?;
        self.s3.head_bucket().bucket(BUCKET).send().await?;
        let listed = self.s3.list_buckets().send().await?;
        assert!(listed.buckets().iter().any(|bucket| bucket.name() == Some(BUCKET)));
        Ok(ok("buckets"))
    }

    async fn objects(&self) -> Outcome {
        let bytes: Vec<u8> = (0..=255).cycle().take(1024).collect();
        for (key, body) in [("bytes", bytes), ("empty", Vec::new())] {
            let etag = self.put(key, body.clone()).await?;
            let head = self.s3.head_object().bucket(BUCKET).key(key).send().await?;
            assert_eq!((head.content_length(), head.e_tag()), (Some(body.len() as i64), Some(&*etag)));
            assert_eq!(self.read(key).await?, body);
        }
        for _ in 0..2 {
            self.s3.delete_object().bucket(BUCKET).key("empty").send().await?;
        }
        refused(self.s3.get_object().bucket(BUCKET).key("empty").send().await, 404, "NoSuchKey");
        Ok(ok("objects"))
    }

    async fn range(&self) -> Outcome {
        self.put("ranged", "0123456789").await?;
        for (range, expected, place) in [("bytes=2-4", "234", "bytes 2-4/10"), ("bytes=-2", "89", "bytes 8-9/10")] {
            let got = self.s3.get_object().bucket(BUCKET).key("ranged").range(range).send().await?;
            assert_eq!(got.content_range(), Some(place));
            assert_eq!(got.body.collect().await?.to_vec(), expected.as_bytes());
        }
        Ok(ok("range"))
    }

    async fn read_conditions(&self) -> Outcome {
        let etag = self.put("conditional", "hello").await?;
        let get = || self.s3.get_object().bucket(BUCKET).key("conditional");
        get().if_match(&etag).send().await?;
        get().if_none_match("\"other\"").send().await?;
        refused(get().if_match("\"other\"").send().await, 412, "PreconditionFailed");
        refused(get().if_none_match(&etag).send().await, 304, "");
        Ok(ok("read-conditions"))
    }

    async fn write_conditions(&self) -> Outcome {
        let once = |body: &'static str| {
            let body = ByteStream::from_static(body.as_bytes());
            self.s3.put_object().bucket(BUCKET).key("once").if_none_match("*").body(body).send()
        };
        once("first").await?;
        refused(once("second").await, 412, "PreconditionFailed");
        assert_eq!(self.read("once").await?, b"first");
        Ok(ok("write-conditions"))
    }

    async fn metadata(&self) -> Outcome {
        let body = ByteStream::from_static(b"hello");
        let put = self.s3.put_object().bucket(BUCKET).key("described").body(body);
        put.content_type("text/plain; charset=utf-8").metadata("colour", "green").send().await?;
        let head = self.s3.head_object().bucket(BUCKET).key("described").send().await?;
        assert_eq!(head.content_type(), Some("text/plain; charset=utf-8"));
        assert_eq!(head.metadata().and_then(|all| all.get("colour")).map(String::as_str), Some("green"));
        Ok(ok("metadata"))
    }

    async fn copy(&self) -> Outcome {
        let copy = |to: &str| self.s3.copy_object().bucket(BUCKET).key(to).copy_source(format!("{BUCKET}/described"));
        copy("copied").send().await?;
        let replaced = copy("changed").metadata_directive(MetadataDirective::Replace).metadata("colour", "red");
        replaced.content_type("a/b").send().await?;
        for (key, kind, colour) in [("copied", "text/plain; charset=utf-8", "green"), ("changed", "a/b", "red")] {
            let got = self.s3.get_object().bucket(BUCKET).key(key).send().await?;
            assert_eq!(got.content_type(), Some(kind));
            assert_eq!(got.metadata().and_then(|all| all.get("colour")).map(String::as_str), Some(colour));
            assert_eq!(got.body.collect().await?.to_vec(), b"hello");
        }
        Ok(ok("copy"))
    }

    async fn listing(&self) -> Outcome {
        for key in ["tree/a", "tree/b/1", "tree/b/2", "tree/c/1"] {
            self.put(key, key).await?;
        }
        let page = self.s3.list_objects_v2().bucket(BUCKET).prefix("tree/").delimiter("/").send().await?;
        let keys: Vec<_> = page.contents().iter().filter_map(|object| object.key()).collect();
        let prefixes: Vec<_> = page.common_prefixes().iter().filter_map(|one| one.prefix()).collect();
        assert_eq!((keys, prefixes), (vec!["tree/a"], vec!["tree/b/", "tree/c/"]));
        Ok(ok("listing"))
    }

    /// Pages and what empties them.
    async fn pages(&self) -> Outcome {
        let expected: Vec<String> = (0..1001).map(|index| format!("pages/{index:04}")).collect();
        for keys in expected.chunks(16) {
            let mut puts = tokio::task::JoinSet::new();
            for key in keys {
                puts.spawn(self.s3.put_object().bucket(BUCKET).key(key).send());
            }
            while let Some(done) = puts.join_next().await {
                done??;
            }
        }
        assert_eq!(self.keys("pages/").await?, expected);
        ok("pages");

        for keys in expected.chunks(1000) {
            let named = keys.iter().map(|key| ObjectIdentifier::builder().key(key).build());
            let delete = Delete::builder().set_objects(Some(named.collect::<Result<_, _>>()?)).build()?;
            let done = self.s3.delete_objects().bucket(BUCKET).delete(delete).send().await?;
            assert_eq!((done.deleted().len(), done.errors().len()), (keys.len(), 0));
        }
        assert_eq!(self.keys("pages/").await?, [""; 0]);
        Ok(ok("delete-many"))
    }

    async fn multipart(&self) -> Outcome {
        let upload = self.s3.create_multipart_upload().bucket(BUCKET).key("parts").send().await?;
        let upload = upload.upload_id.ok_or("no upload id")?;
        let bodies = [vec![b'a'; PART_BYTES], vec![b'z']];
        let mut parts = Vec::new();
        for (number, body) in (1..).zip(&bodies) {
            let part = self.s3.upload_part().bucket(BUCKET).key("parts").upload_id(&upload).part_number(number);
            let done = part.body(ByteStream::from(body.clone())).send().await?;
            let part = CompletedPart::builder().part_number(number).set_e_tag(done.e_tag);
            parts.push(part.set_checksum_crc32(done.checksum_crc32).build());
        }
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = self.s3.complete_multipart_upload().bucket(BUCKET).key("parts").upload_id(upload);
        let done = complete.multipart_upload(parts).send().await?;
        assert!(done.e_tag().is_some_and(|etag| etag.ends_with("-2\"")), "{done:?}");
        assert_eq!(self.read("parts").await?, bodies.concat());
        Ok(ok("multipart"))
    }

    async fn aborted_multipart(&self) -> Outcome {
        let upload = self.s3.create_multipart_upload().bucket(BUCKET).key("aborted").send().await?;
        let upload = upload.upload_id.ok_or("no upload id")?;
        let part = self.s3.upload_part().bucket(BUCKET).key("aborted").upload_id(&upload).part_number(1);
        part.body(ByteStream::from_static(b"lost")).send().await?;
        self.s3.abort_multipart_upload().bucket(BUCKET).key("aborted").upload_id(upload).send().await?;
        let left = self.s3.list_multipart_uploads().bucket(BUCKET).send().await?;
        assert!(left.uploads().is_empty(), "{left:?}");
        refused(self.s3.get_object().bucket(BUCKET).key("aborted").send().await, 404, "NoSuchKey");
        Ok(ok("aborted-multipart"))
    }

    async fn presigned(&self) -> Outcome {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let send = |request: &PresignedRequest, uri: &str, body: Option<&str>| -> Outcome<(u16, String)> {
            let mut answer = match body {
                None => request.headers().fold(agent.get(uri), |send, (name, value)| send.header(name, value)).call(),
                Some(body) => {
                    request.headers().fold(agent.put(uri), |send, (name, value)| send.header(name, value)).send(body)
                }
            }?;
            Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
        };
        let hour = PresigningConfig::expires_in(Duration::from_secs(3600))?;

        let get = self.s3.get_object().bucket(BUCKET).key("ranged").presigned(hour.clone()).await?;
        assert_eq!(send(&get, get.uri(), None)?, (200, "0123456789".to_owned()));
        assert_eq!(send(&get, &get.uri().replace("ranged", "once"), None)?.0, 403);
        ok("presigned-get");

        let put = self.s3.put_object().bucket(BUCKET).key("by url").presigned(hour).await?;
        assert_eq!(send(&put, put.uri(), Some("put by url"))?.0, 200);
        assert_eq!(self.read("by url").await?, b"put by url");
        Ok(ok("presigned-put"))
    }

    async fn tagging(&self) -> Outcome {
        self.put("tagged", "hello").await?;
        let tag = |key: &str, value: &str| Tag::builder().key(key).value(value).build();
        let given = vec![tag("a", "1")?, tag("grün", "x y")?];
        let tagging = Tagging::builder().set_tag_set(Some(given.clone())).build()?;
        self.s3.put_object_tagging().bucket(BUCKET).key("tagged").tagging(tagging).send().await?;
        let mut found = self.s3.get_object_tagging().bucket(BUCKET).key("tagged").send().await?.tag_set;
        found.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(found, given);
        self.s3.delete_object_tagging().bucket(BUCKET).key("tagged").send().await?;
        let left = self.s3.get_object_tagging().bucket(BUCKET).key("tagged").send().await?;
        assert!(left.tag_set().is_empty(), "{left:?}");
        Ok(ok("tagging"))
    }

    async fn odd_keys(&self) -> Outcome {
        for key in ODD_KEYS {
            self.put(key, key).await?;
        }
        let listed = self.keys("").await?;
        for key in ODD_KEYS {
            assert_eq!(self.read(key).await?, key.as_bytes(), "{key}");
            assert_eq!(listed.iter().filter(|found| *found == key).count(), 1, "{key} in {listed:?}");
        }
        Ok(ok("odd-keys"))
    }

    async fn checksums(&self) -> Outcome {
        let put = || self.s3.put_object().bucket(BUCKET).key("summed").body(ByteStream::from_static(b"hello"));
        assert_eq!(put().send().await?.checksum_crc32(), Some("NhCmhg=="));
        let head = self.s3.head_object().bucket(BUCKET).key("summed").checksum_mode(ChecksumMode::Enabled);
        assert_eq!(head.send().await?.checksum_crc32(), Some("NhCmhg=="));
        refused(put().checksum_crc32("AAAAAA==").send().await, 400, "BadDigest");
        Ok(ok("checksums"))
    }

    async fn missing(&self) -> Outcome {
        let get = |bucket: &str| self.s3.get_object().bucket(bucket).key("none").send();
        let error = get(BUCKET).await.err().ok_or("it was there")?.into_service_error();
        assert!(error.is_no_such_key(), "{error:?}");
        refused(get("no-such-bucket").await, 404, "NoSuchBucket");
        let head = self.s3.head_object().bucket(BUCKET).key("none").send().await;
        let error = head.err().ok_or("it was there")?.into_service_error();
        assert!(error.is_not_found(), "{error:?}");
        Ok(ok("missing"))
    }

    async fn credentials(&self) -> Outcome {
        let known = std::env::var("AWS_ACCESS_KEY_ID")?;
        for (key, code) in [(&*known, "SignatureDoesNotMatch"), ("UNKNOWNKEY", "InvalidAccessKeyId")] {
            let wrong = Credentials::new(key, "wrong", None, None, "checks");
            let shared = self.shared.to_builder().credentials_provider(SharedCredentialsProvider::new(wrong)).build();
            refused(Client::new(&shared).list_buckets().send().await, 403, code);
        }
        Ok(ok("credentials"))
    }

    async fn bucket_delete(&self) -> Outcome {
        refused(self.s3.delete_bucket().bucket(BUCKET).send().await, 409, "BucketNotEmpty");
        for key in self.keys("").await? {
            self.s3.delete_object().bucket(BUCKET).key(key).send().await?;
        }
        self.s3.delete_bucket().bucket(BUCKET).send().await?;
        refused(self.s3.list_objects_v2().bucket(BUCKET).send().await, 404, "NoSuchBucket");
        Ok(ok("bucket-delete"))
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let plain_http = aws_smithy_http_client::Builder::new().build_http();
    let shared = aws_config::defaults(BehaviorVersion::latest()).http_client(plain_http).load().await;
    let checks = Checks { s3: Client::new(&shared), shared };
    checks.buckets().await?;
    checks.objects().await?;
    checks.range().await?;
    checks.read_conditions().await?;
    checks.write_conditions().await?;
    checks.metadata().await?;
    checks.copy().await?;
    checks.listing().await?;
    checks.pages().await?;
    checks.multipart().await?;
    checks.aborted_multipart().await?;
    checks.presigned().await?;
    checks.tagging().await?;
    checks.odd_keys().await?;
    checks.checksums().await?;
    checks.missing().await?;
    checks.credentials().await?;
    checks.bucket_delete().await
}
