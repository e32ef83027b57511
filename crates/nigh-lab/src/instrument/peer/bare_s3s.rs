//! A bare s3s server: objects in a map, SigV4 on, nothing else. What Nigh's S3 door is built on costs this much.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, RwLock};

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::auth::SimpleAuth;
use s3s::dto::{ETag, GetObjectInput, GetObjectOutput, PutObjectInput, PutObjectOutput, StreamingBlob};
use s3s::service::S3ServiceBuilder;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use tokio::net::TcpListener;

/// The access key it takes.
pub const ACCESS_KEY: &str = "NIGHBAREPEER";
/// The secret it takes.
pub const SECRET_KEY: &str = "bare-s3s-peer-secret";

#[derive(Default)]
struct Objects(RwLock<HashMap<(String, String), Bytes>>);

#[async_trait::async_trait]
impl S3 for Objects {
    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let objects = self.0.read().map_err(|_| s3_error!(InternalError))?;
        let name = (request.input.bucket, request.input.key);
        let object = objects.get(&name).ok_or_else(|| s3_error!(NoSuchKey))?.clone();
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(object.len() as i64),
            e_tag: Some(ETag::Strong("d41d8cd98f00b204e9800998ecf8427e".to_owned())),
            body: Some(StreamingBlob::from(s3s::Body::from(object))),
            ..GetObjectOutput::default()
        }))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let mut bytes = BytesMut::new();
        if let Some(mut body) = input.body {
            while let Some(chunk) = body.try_next().await.map_err(|_| s3_error!(IncompleteBody))? {
                bytes.extend_from_slice(&chunk);
            }
        }
        let mut objects = self.0.write().map_err(|_| s3_error!(InternalError))?;
        objects.insert((input.bucket, input.key), bytes.freeze());
        Ok(S3Response::new(PutObjectOutput::default()))
    }
}

/// Serves on a free port until the process ends; prints the port first.
///
/// # Errors
/// If no port can be had.
#[expect(clippy::print_stdout, reason = "the port is this program's one output")]
pub async fn serve() -> std::io::Result<()> {
    let mut builder = S3ServiceBuilder::new(Objects::default());
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    let service = Arc::new(builder.build());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service.as_ref().clone()).await;
        });
    }
}
