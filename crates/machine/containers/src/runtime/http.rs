//! HTTP/1 over a unix socket, one connection a request: the peer may restart at any time, and connecting costs microseconds.

use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::RuntimeError;

/// One event of a stream is a small thing; a peer that sends no line end for so long is not speaking our language.
const LONGEST_LINE: usize = 1024 * 1024;

#[derive(Debug, Clone)]
pub(super) struct UnixHttp {
    socket: PathBuf,
}

/// Drives a connection for as long as someone wants its answer.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UnixHttp {
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    async fn send(&self, path: &str) -> Result<(Response<Incoming>, Driver), RuntimeError> {
        let stream =
            UnixStream::connect(&self.socket)
                .await
                .map_err(|source| RuntimeError::Connect {
                    socket: self.socket.clone(),
                    source,
                })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let driver = Driver(tokio::spawn(async move {
            // Its error is also the request's.
            let _ = connection.await;
        }));
        let request = Request::get(path)
            .header(hyper::header::HOST, "localhost")
            .body(Empty::<Bytes>::new())
            .map_err(|error| RuntimeError::Malformed(error.to_string().into()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        Ok((response, driver))
    }

    /// The whole answer, up to `limit` bytes.
    pub async fn get(&self, path: &str, limit: usize) -> Result<(StatusCode, Bytes), RuntimeError> {
        let (response, _driver) = self.send(path).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), limit).collect().await;
        match body {
            Ok(body) => Ok((status, body.to_bytes())),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Err(RuntimeError::TooLarge(limit))
            }
            Err(error) => Err(RuntimeError::Broken(error.to_string().into())),
        }
    }

    /// Follows an answer that does not end, line by line.
    pub async fn lines(
        &self,
        path: &str,
        mut each: impl FnMut(&[u8]) -> Result<(), RuntimeError> + Send,
    ) -> Result<(), RuntimeError> {
        let (response, _driver) = self.send(path).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => {
                return Err(RuntimeError::Unsupported);
            }
            status => return Err(refused(status, &[])),
        }
        let mut body = response.into_body();
        let mut pending = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(broken)?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            pending.extend_from_slice(data);
            let mut start = 0;
            while let Some(length) = pending[start..].iter().position(|b| *b == b'\n') {
                let line = pending[start..start + length].trim_ascii();
                if !line.is_empty() {
                    each(line)?;
                }
                start += length + 1;
            }
            pending.drain(..start);
            if pending.len() > LONGEST_LINE {
                return Err(RuntimeError::TooLarge(LONGEST_LINE));
            }
        }
        Ok(())
    }
}

pub(super) fn refused(status: StatusCode, body: &[u8]) -> RuntimeError {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    RuntimeError::Refused {
        code: status.as_str().into(),
        message: text.trim().into(),
    }
}

fn broken(error: hyper::Error) -> RuntimeError {
    // What is not HTTP is a malformed answer, not a lost one.
    if error.is_parse() || error.is_parse_status() {
        return RuntimeError::Malformed(error.to_string().into());
    }
    RuntimeError::Broken(error.to_string().into())
}
