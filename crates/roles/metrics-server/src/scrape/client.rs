//! One scrape: from a node's address to its page.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use http::{HeaderValue, Uri};
use parking_lot::Mutex;

use super::connection::Connection;
use super::fault::Fault;
use super::http::{Answer, HttpError};
use super::identity::Identity;
use super::target::Target;

/// As many as Go's client follows.
const REDIRECTS: usize = 10;
/// Buffers that have become larger than this are not kept for the next page.
const KEPT_BUFFER: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Client {
    pub identity: Arc<Identity>,
    pub user_agent: String,
    pub timeout: Duration,
    /// The largest page, uncompressed.
    pub limit: usize,
    pub buffers: Buffers,
}

/// Room for pages, used in turn.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    pub fn give(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock();
        if buffer.capacity() <= KEPT_BUFFER && kept.len() < 64 {
            kept.push(buffer);
        }
    }
}

/// A page, in a buffer to be given back.
#[derive(Debug)]
pub(super) struct Body {
    pub buffer: Vec<u8>,
    pub range: std::ops::Range<usize>,
}

impl Body {
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl Client {
    /// Fetches a page over the connection of the last time if that is still there. What is left in `connection` can be
    /// used the next time.
    pub async fn fetch(
        &self,
        target: &Target,
        connection: &mut Option<Connection>,
    ) -> Result<Body, Fault> {
        let mut buffer = self.buffers.take();
        let fetched = tokio::time::timeout(
            self.timeout,
            self.fetch_into(target, connection, &mut buffer),
        );
        match fetched.await {
            Ok(Ok(answer)) => {
                if answer.gzip {
                    return self.uncompress(buffer, answer.body);
                }
                Ok(Body {
                    buffer,
                    range: answer.body,
                })
            }
            Ok(Err(fault)) => {
                *connection = None;
                self.buffers.give(buffer);
                Err(fault)
            }
            Err(_) => {
                // Whatever comes now would be taken for the answer to the next request.
                *connection = None;
                Err(Fault::Timeout(self.timeout))
            }
        }
    }

    async fn fetch_into(
        &self,
        target: &Target,
        connection: &mut Option<Connection>,
        buffer: &mut Vec<u8>,
    ) -> Result<Answer, Fault> {
        let token = self.identity.token().await?;
        let request = self.request(target, token.as_ref());
        let mut answer = self.ask(target, connection, &request, buffer).await?;
        let mut elsewhere: Option<(Target, Option<Connection>)> = None;
        for _ in 0..REDIRECTS {
            if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
                break;
            }
            let from = elsewhere.as_ref().map_or(target, |(from, _)| from);
            let next = redirect(from, &answer).ok_or(Fault::Redirect)?;
            // Credentials are for the node only.
            let token = token
                .as_ref()
                .filter(|_| next.host == target.host && next.plain == target.plain);
            let request = self.request(&next, token);
            if next.same_place(target) {
                answer = self.ask(&next, connection, &request, buffer).await?;
                elsewhere = Some((next, None));
                continue;
            }
            let kept = elsewhere.filter(|(from, _)| from.same_place(&next));
            let mut other = kept.and_then(|(_, other)| other);
            answer = self.ask(&next, &mut other, &request, buffer).await?;
            elsewhere = Some((next, other));
        }
        match answer.status {
            200 => Ok(answer),
            300..=399 if answer.location.is_some() => Err(Fault::Redirect),
            _ => Err(Fault::Status(answer.status_line)),
        }
    }

    /// On the given connection, or a new one. A kept one may have been closed meanwhile, which is nobody's fault.
    async fn ask(
        &self,
        target: &Target,
        connection: &mut Option<Connection>,
        request: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<Answer, Fault> {
        if let Some(mut kept) = connection.take() {
            kept.lend(&self.buffers);
            match kept.exchange(request, buffer, self.limit).await {
                Ok(answer) => {
                    *connection = self.keep(kept, &answer);
                    return Ok(answer);
                }
                Err(HttpError::Closed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Boxed: handshakes are rare, and would make every scrape large.
        let open = Connection::open(target, self.identity.tls(), &self.buffers);
        let mut new = Box::pin(open).await?;
        let answer = new.exchange(request, buffer, self.limit).await?;
        *connection = self.keep(new, &answer);
        Ok(answer)
    }

    /// A connection that is of further use stays.
    fn keep(&self, mut used: Connection, answer: &Answer) -> Option<Connection> {
        let quiet = used.rest(&self.buffers);
        (answer.reusable && quiet).then_some(used)
    }

    fn request(&self, target: &Target, token: Option<&HeaderValue>) -> Vec<u8> {
        let Target { path, .. } = target;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {}\r\nAccept-Encoding: gzip\r\n",
            target.authority(),
            self.user_agent
        );
        let mut request = head.into_bytes();
        if let Some(token) = token {
            request.extend_from_slice(b"Authorization: ");
            request.extend_from_slice(token.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request
    }

    fn uncompress(&self, buffer: Vec<u8>, body: std::ops::Range<usize>) -> Result<Body, Fault> {
        let limit = self.limit;
        let mut plain = self.buffers.take();
        plain.clear();
        let mut decoder = MultiGzDecoder::new(&buffer[body]).take(limit as u64 + 1);
        let read = decoder.read_to_end(&mut plain);
        self.buffers.give(buffer);
        let fault = match read {
            Ok(length) if length <= limit => {
                return Ok(Body {
                    buffer: plain,
                    range: 0..length,
                });
            }
            Ok(_) => Fault::TooLarge { limit },
            Err(error) => Fault::Compressed(error),
        };
        self.buffers.give(plain);
        Err(fault)
    }
}

fn redirect(from: &Target, answer: &Answer) -> Option<Target> {
    let uri: Uri = answer.location.as_deref()?.parse().ok()?;
    let path = uri.path_and_query()?.to_string();
    let Some(authority) = uri.authority() else {
        return path.starts_with('/').then(|| Target {
            path,
            ..from.clone()
        });
    };
    let plain = match uri.scheme_str()? {
        "https" => false,
        "http" => true,
        _ => return None,
    };
    Some(Target {
        host: authority.host().trim_matches(['[', ']']).to_owned(),
        port: authority.port_u16().unwrap_or(if plain { 80 } else { 443 }),
        path,
        plain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections() {
        let from = Target {
            host: "10.0.0.1".to_owned(),
            port: 10250,
            path: "/metrics/resource".to_owned(),
            plain: false,
        };
        let to = |location: &str| {
            let answer = Answer {
                status: 302,
                status_line: "302 Found".to_owned(),
                location: Some(location.to_owned()),
                gzip: false,
                reusable: true,
                body: 0..0,
            };
            let target = redirect(&from, &answer)?;
            Some(format!(
                "{} {} {}",
                target.authority(),
                target.path,
                target.plain
            ))
        };
        let check =
            |location, expected: Option<&str>| assert_eq!(to(location).as_deref(), expected);
        check("/other?x=y", Some("10.0.0.1:10250 /other?x=y false"));
        check("https://h/x", Some("h:443 /x false"));
        check("http://[fd00::1]:8080/", Some("[fd00::1]:8080 / true"));
        check("ftp://h/x", None);
        check("other", None);
        check("", None);
    }
}
