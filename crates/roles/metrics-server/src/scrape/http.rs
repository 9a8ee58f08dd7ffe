//! One HTTP/1.1 exchange on a connection.
//!
//! Our own rather than a library's: between scrapes a connection must hold no buffers, there are thousands of them.
//! What comes is read into a buffer that is lent by whoever scrapes, and the body is put together in place.

use std::io;
use std::ops::Range;

use memchr::memmem;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most that may come before the body.
const HEAD_LIMIT: usize = 64 * 1024;
/// The most that a line between chunks may take.
const CHUNK_LINE_LIMIT: usize = 256;
const READ_AT_ONCE: usize = 16 * 1024;

#[derive(Debug, Error)]
pub(super) enum HttpError {
    #[error("the connection was closed before an answer came")]
    Closed(#[source] Option<io::Error>),
    #[error("the connection broke in the middle of the answer")]
    Broken(#[source] io::Error),
    #[error("the answer is not HTTP/1.1")]
    NotHttp,
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    /// Status and reason, as sent.
    pub status_line: String,
    pub location: Option<String>,
    pub gzip: bool,
    /// Another request may be sent on the connection.
    pub reusable: bool,
    /// Where in the buffer.
    pub body: Range<usize>,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    status_line: String,
    location: Option<String>,
    gzip: bool,
    reusable: bool,
    length: Length,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Known(usize),
    Chunked,
    UntilClosed,
}

/// Sends a request, which must not have a body, and reads the answer.
pub(super) async fn exchange<S>(
    stream: &mut S,
    request: &[u8],
    buffer: &mut Vec<u8>,
    limit: usize,
) -> Result<Answer, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let closed = |error| HttpError::Closed(Some(error));
    stream.write_all(request).await.map_err(closed)?;
    stream.flush().await.map_err(closed)?;
    buffer.clear();
    let (head, start) = loop {
        let (head, end) = read_head(stream, buffer).await?;
        // Something in between, before the answer proper.
        if !(100..200).contains(&head.status) {
            break (head, end);
        }
        buffer.drain(..end);
    };
    let (end, reusable) = match head.length {
        Length::Known(length) => {
            check(length, limit)?;
            while buffer.len() < start + length {
                more(stream, buffer).await?;
            }
            (start + length, buffer.len() == start + length)
        }
        Length::Chunked => read_chunks(stream, buffer, start, limit).await?,
        Length::UntilClosed => loop {
            check(buffer.len() - start, limit)?;
            if fill(stream, buffer).await.map_err(HttpError::Broken)? == 0 {
                break (buffer.len(), false);
            }
        },
    };
    Ok(Answer {
        status: head.status,
        status_line: head.status_line,
        location: head.location,
        gzip: head.gzip,
        reusable: head.reusable && reusable,
        body: start..end,
    })
}

fn check(length: usize, limit: usize) -> Result<(), HttpError> {
    match length <= limit {
        true => Ok(()),
        false => Err(HttpError::TooLarge { limit }),
    }
}

async fn fill<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.reserve(READ_AT_ONCE);
    stream.read_buf(buffer).await
}

async fn more<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut Vec<u8>) -> Result<(), HttpError> {
    match fill(stream, buffer).await {
        Ok(0) => Err(HttpError::Broken(io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => Ok(()),
        Err(error) => Err(HttpError::Broken(error)),
    }
}

async fn read_head<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
) -> Result<(Head, usize), HttpError> {
    let mut searched = 0_usize;
    loop {
        // The end may be half in what was searched before.
        let from = searched.saturating_sub(3);
        if let Some(found) = memmem::find(&buffer[from..], b"\r\n\r\n") {
            let end = from + found;
            let head = parse_head(&buffer[..end]).ok_or(HttpError::NotHttp)?;
            return Ok((head, end + 4));
        }
        searched = buffer.len();
        if searched >= 5 && !buffer.starts_with(b"HTTP/") || searched > HEAD_LIMIT {
            return Err(HttpError::NotHttp);
        }
        let nothing_yet = buffer.is_empty();
        match fill(stream, buffer).await {
            Ok(0) if nothing_yet => return Err(HttpError::Closed(None)),
            Err(error) if nothing_yet => return Err(HttpError::Closed(Some(error))),
            Ok(0) => return Err(HttpError::Broken(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => return Err(HttpError::Broken(error)),
            Ok(_) => {}
        }
    }
}

/// What comes before the empty line.
fn parse_head(head: &[u8]) -> Option<Head> {
    // What is no text in a header is in none that matters here.
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let (version, status_line) = lines.next()?.split_once(' ')?;
    let status: u16 = status_line.get(..3)?.parse().ok()?;
    let mut head = Head {
        status,
        status_line: status_line.to_owned(),
        location: None,
        gzip: false,
        reusable: version == "HTTP/1.1",
        length: Length::UntilClosed,
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || status < 100 {
        return None;
    }
    for line in lines {
        // The rest of the one before it, which none of those that matter needs.
        if line.starts_with([' ', '\t']) {
            continue;
        }
        let (name, value) = line.split_once(':')?;
        let value = value.trim_matches([' ', '\t']);
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("content-length") {
            // Who says two lengths means something that we would not guess.
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| digits)?;
            match head.length {
                Length::Known(other) if other != length => return None,
                // Chunks are what counts if both are said.
                Length::Chunked => {}
                _ => head.length = Length::Known(length),
            }
        } else if is("transfer-encoding") {
            match value.eq_ignore_ascii_case("chunked") {
                true => head.length = Length::Chunked,
                false => return None,
            }
        } else if is("content-encoding") {
            head.gzip = value.eq_ignore_ascii_case("gzip");
        } else if is("connection") {
            head.reusable &= !value.eq_ignore_ascii_case("close");
        } else if is("location") {
            head.location = Some(value.to_owned());
        }
    }
    if status == 204 || status == 304 || status < 200 {
        head.length = Length::Known(0);
    }
    Some(head)
}

/// Joins the chunks from `start` on; says where the body ends, and whether the connection can be used again.
async fn read_chunks<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
    start: usize,
    limit: usize,
) -> Result<(usize, bool), HttpError> {
    let mut chunks = Chunks {
        next: Next::Size,
        end: start,
    };
    loop {
        if chunks.join(buffer).ok_or(HttpError::NotHttp)? {
            return Ok((chunks.end, buffer.len() == chunks.end));
        }
        check(chunks.end - start, limit)?;
        more(stream, buffer).await?;
    }
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Size,
    Data(usize),
    EndOfData,
    Trailer,
}

#[derive(Debug)]
struct Chunks {
    next: Next,
    /// How far the body is joined. What was not looked at yet follows at once.
    end: usize,
}

impl Chunks {
    /// Takes what has come; `true`: that was all. `None`: these are no chunks.
    fn join(&mut self, buffer: &mut Vec<u8>) -> Option<bool> {
        let mut at = self.end;
        let whole = loop {
            let rest = &buffer[at..];
            if let Next::Data(left) = self.next {
                let take = left.min(rest.len());
                buffer.copy_within(at..at + take, self.end);
                self.end += take;
                at += take;
                if take < left {
                    self.next = Next::Data(left - take);
                    break false;
                }
                self.next = Next::EndOfData;
                continue;
            }
            let Some(length) = memchr::memchr(b'\n', rest) else {
                if rest.len() > CHUNK_LINE_LIMIT {
                    return None;
                }
                break false;
            };
            let line = rest[..length].strip_suffix(b"\r")?;
            at += length + 1;
            self.next = match self.next {
                Next::Size => match size(line)? {
                    0 => Next::Trailer,
                    size => Next::Data(size),
                },
                Next::EndOfData if line.is_empty() => Next::Size,
                Next::Trailer if line.is_empty() => break true,
                Next::Trailer => Next::Trailer,
                _ => return None,
            };
        };
        buffer.copy_within(at.., self.end);
        buffer.truncate(self.end + buffer.len() - at);
        Some(whole)
    }
}

fn size(line: &[u8]) -> Option<usize> {
    let end = line.iter().position(|byte| *byte == b';');
    let digits = std::str::from_utf8(&line[..end.unwrap_or(line.len())]).ok()?;
    let digits = digits.trim_matches([' ', '\t']);
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    usize::from_str_radix(digits, 16)
        .ok()
        .filter(|size| hex && *size <= usize::MAX / 4)
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
