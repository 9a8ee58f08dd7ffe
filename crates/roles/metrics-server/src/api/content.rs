//! Documents that clients keep or read in parts: conditions and ranges of RFC 9110, answered as Go's file server does.

use std::ops::Range;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use plimsoll_apimachinery::answer;
use plimsoll_apimachinery::answer::{Answer, full};

/// A document, and what tells whether a client has it already.
#[derive(Debug)]
pub struct Content<'a> {
    /// With quotes.
    pub etag: &'a str,
    pub modified: Timestamp,
    pub kind: &'static str,
    pub body: Bytes,
}

/// What a client knows of it already.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// It may be sent, all of it or the parts that are wanted.
    No {
        in_parts: bool,
    },
    Same,
    /// It is not what the client thinks.
    Mistaken,
}

impl Content<'_> {
    pub fn answer(self, method: &Method, headers: &HeaderMap) -> Answer {
        let mut response = match self.known(method, headers) {
            Known::Same => {
                let mut response = empty(StatusCode::NOT_MODIFIED);
                self.mark(&mut response, false);
                return response;
            }
            Known::Mistaken => {
                let mut response = empty(StatusCode::PRECONDITION_FAILED);
                let kind = HeaderValue::from_static(self.kind);
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
            Known::No { in_parts } => {
                let wanted = text(headers, header::RANGE).filter(|_| in_parts);
                let mut response = match parts(wanted, self.body.len()) {
                    Ok(parts) => self.in_parts(&parts),
                    Err(error) => return unsatisfiable(error, self.body.len()),
                };
                let bytes = HeaderValue::from_static("bytes");
                response.headers_mut().insert(header::ACCEPT_RANGES, bytes);
                response
            }
        };
        self.mark(&mut response, true);
        response
    }

    fn mark(&self, response: &mut Answer, dated: bool) {
        let headers = response.headers_mut();
        if let Ok(etag) = HeaderValue::from_str(self.etag) {
            headers.insert(header::ETAG, etag);
        }
        let printer = rfc2822::DateTimePrinter::new();
        let date = printer.timestamp_to_rfc9110_string(&self.modified).ok();
        let date = date.and_then(|date| HeaderValue::from_str(&date).ok());
        if let Some(date) = date.filter(|_| dated) {
            headers.insert(header::LAST_MODIFIED, date);
        }
    }

    fn known(&self, method: &Method, headers: &HeaderMap) -> Known {
        let only_reads = matches!(*method, Method::GET | Method::HEAD);
        let modified = self.modified.as_second();
        let matches = match text(headers, header::IF_MATCH) {
            Some(tags) => is_one_of(self.etag, tags, Strength::Strong),
            None => seconds(headers, header::IF_UNMODIFIED_SINCE).is_none_or(|at| modified <= at),
        };
        if !matches {
            return Known::Mistaken;
        }
        let has_it = match text(headers, header::IF_NONE_MATCH) {
            Some(tags) => is_one_of(self.etag, tags, Strength::Weak),
            None => {
                let since = seconds(headers, header::IF_MODIFIED_SINCE);
                only_reads && since.is_some_and(|at| modified <= at)
            }
        };
        match (has_it, only_reads) {
            (true, true) => Known::Same,
            (true, false) => Known::Mistaken,
            (false, _) => Known::No {
                in_parts: !only_reads || self.is_in_range(headers),
            },
        }
    }

    /// Parts are of use to those who have the others.
    fn is_in_range(&self, headers: &HeaderMap) -> bool {
        match text(headers, header::IF_RANGE) {
            None => true,
            Some(tag) if tag.starts_with(['"', 'W']) => tag == self.etag && !tag.starts_with("W/"),
            Some(_) => seconds(headers, header::IF_RANGE) == Some(self.modified.as_second()),
        }
    }

    fn in_parts(&self, parts: &[Range<usize>]) -> Answer {
        let size = self.body.len();
        let place = |part: &Range<usize>| format!("bytes {}-{}/{size}", part.start, part.end - 1);
        match parts {
            [] => answer::answer(StatusCode::OK, self.kind, full(self.body.clone())),
            [part] => {
                let body = full(self.body.slice(part.clone()));
                let mut response = answer::answer(StatusCode::PARTIAL_CONTENT, self.kind, body);
                if let Ok(place) = HeaderValue::from_str(&place(part)) {
                    response.headers_mut().insert(header::CONTENT_RANGE, place);
                }
                response
            }
            parts => {
                let boundary = format!("{:032x}{:028x}", fastrand::u128(..), fastrand::u64(..));
                let mut body = Vec::new();
                for (index, part) in parts.iter().enumerate() {
                    let line = if index == 0 { "" } else { "\r\n" };
                    let head = format!(
                        "{line}--{boundary}\r\nContent-Range: {}\r\nContent-Type: {}\r\n\r\n",
                        place(part),
                        self.kind
                    );
                    body.extend_from_slice(head.as_bytes());
                    body.extend_from_slice(&self.body[part.clone()]);
                }
                body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
                let mut response =
                    answer::answer(StatusCode::PARTIAL_CONTENT, self.kind, full(body));
                let kind = format!("multipart/byteranges; boundary={boundary}");
                if let Ok(kind) = HeaderValue::from_str(&kind) {
                    response.headers_mut().insert(header::CONTENT_TYPE, kind);
                }
                response
            }
        }
    }
}

fn empty(status: StatusCode) -> Answer {
    let mut response = Response::new(full(""));
    *response.status_mut() = status;
    response
}

fn unsatisfiable(error: RangeError, size: usize) -> Answer {
    let text = match error {
        RangeError::Malformed => "invalid range\n",
        RangeError::Beyond => "invalid range: failed to overlap\n",
    };
    let mut response = answer::text(StatusCode::RANGE_NOT_SATISFIABLE, text);
    if error == RangeError::Beyond
        && let Ok(place) = HeaderValue::from_str(&format!("bytes */{size}"))
    {
        response.headers_mut().insert(header::CONTENT_RANGE, place);
    }
    response
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let value = headers.get(name)?.to_str().ok()?;
    (!value.is_empty()).then_some(value)
}

fn seconds(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    let parser = rfc2822::DateTimeParser::new();
    let at = parser.parse_timestamp(text(headers, name)?).ok()?;
    Some(at.as_second())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strength {
    Strong,
    Weak,
}

/// Reads tags up to the first that is none.
fn is_one_of(etag: &str, tags: &str, strength: Strength) -> bool {
    let mut rest = tags;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.starts_with('*') {
            return true;
        }
        let (is_weak, tag) = match rest.strip_prefix("W/") {
            Some(tag) => (true, tag),
            None => (false, rest),
        };
        let Some(end) = tag.strip_prefix('"').and_then(|tag| tag.find('"')) else {
            return false;
        };
        let (tag, others) = tag.split_at(end + 2);
        if tag == etag && !(is_weak && strength == Strength::Strong) {
            return true;
        }
        rest = others;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeError {
    Malformed,
    /// All of it is behind the end.
    Beyond,
}

/// What `Range` asks for; nothing: everything.
fn parts(wanted: Option<&str>, size: usize) -> Result<Vec<Range<usize>>, RangeError> {
    let Some(wanted) = wanted else {
        return Ok(Vec::new());
    };
    let number = |text: &str| -> Result<usize, RangeError> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        number.ok_or(RangeError::Malformed)
    };
    let ranges = wanted.strip_prefix("bytes=").ok_or(RangeError::Malformed)?;
    let mut found = Vec::new();
    let mut is_beyond = false;
    let ranges = ranges.split(',').map(str::trim);
    for range in ranges.filter(|range| !range.is_empty()) {
        let (start, end) = range.split_once('-').ok_or(RangeError::Malformed)?;
        let (start, end) = (start.trim(), end.trim());
        let part = match (start, end) {
            ("", last) => size.saturating_sub(number(last)?)..size,
            (start, _) if number(start)? >= size => {
                is_beyond = true;
                continue;
            }
            (start, "") => number(start)?..size,
            (start, end) => {
                let (start, end) = (number(start)?, number(end)?);
                if start > end {
                    return Err(RangeError::Malformed);
                }
                start..size.min(end.saturating_add(1))
            }
        };
        found.push(part);
    }
    if is_beyond && found.is_empty() {
        return Err(RangeError::Beyond);
    }
    // Whoever asks for more than there is gets what there is, once.
    let all: usize = found.iter().map(ExactSizeIterator::len).sum();
    found.retain(|part| all <= size && !part.is_empty());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const TAG: &str = "\"t\"";
    const DATE: &str = "Tue, 17 Nov 2026 19:58:29 GMT";

    async fn asked(method: Method, said: &[(&str, &str)]) -> (u16, HeaderMap, String) {
        let mut headers = HeaderMap::new();
        for (name, value) in said {
            let name: HeaderName = name.parse().unwrap();
            headers.insert(name, value.parse().unwrap());
        }
        let content = Content {
            etag: TAG,
            modified: "2026-11-17T19:58:29.5Z".parse().unwrap(),
            kind: "application/json",
            body: Bytes::from_static(b"0123456789"),
        };
        let (head, body) = content.answer(&method, &headers).into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (head.status.as_u16(), head.headers, body)
    }

    #[tokio::test]
    async fn parts_and_conditions() {
        let later = "Tue, 17 Nov 2099 00:00:00 GMT";
        let earlier = "Tue, 17 Nov 2009 00:00:00 GMT";
        for (said, status, body) in [
            (&[][..], 200, "0123456789"),
            (&[("range", "bytes=0-3")], 206, "0123"),
            (&[("range", "bytes=-3")], 206, "789"),
            (&[("range", "bytes=8-99")], 206, "89"),
            (&[("range", "bytes=0-9,0-9")], 200, "0123456789"),
            (
                &[("range", "bytes=99-")],
                416,
                "invalid range: failed to overlap\n",
            ),
            (&[("range", "bytes=3-1")], 416, "invalid range\n"),
            (&[("range", "x")], 416, "invalid range\n"),
            (
                &[("range", "bytes=0-3"), ("if-range", "\"x\"")],
                200,
                "0123456789",
            ),
            (&[("range", "bytes=0-3"), ("if-range", TAG)], 206, "0123"),
            (&[("range", "bytes=0-3"), ("if-range", DATE)], 206, "0123"),
            (&[("if-none-match", "\"x\", W/\"t\"")], 304, ""),
            (&[("if-none-match", "\"x\"")], 200, "0123456789"),
            (&[("if-none-match", "*")], 304, ""),
            (&[("if-none-match", "t")], 200, "0123456789"),
            (&[("if-modified-since", DATE)], 304, ""),
            (&[("if-modified-since", earlier)], 200, "0123456789"),
            (&[("if-modified-since", "x")], 200, "0123456789"),
            (
                &[("if-modified-since", later), ("if-none-match", "\"x\"")],
                200,
                "0123456789",
            ),
            (&[("if-match", "\"x\"")], 412, ""),
            (&[("if-match", TAG)], 200, "0123456789"),
            (&[("if-unmodified-since", earlier)], 412, ""),
            (&[("if-unmodified-since", later)], 200, "0123456789"),
        ] {
            let (code, headers, text) = asked(Method::GET, said).await;
            assert_eq!((code, text.as_str()), (status, body), "{said:?}");
            let dated = headers
                .get("last-modified")
                .is_some_and(|date| date == DATE);
            assert_eq!(dated, !matches!(status, 304 | 416), "{said:?}");
            let ranged = headers.contains_key("accept-ranges");
            assert_eq!(ranged, matches!(status, 200 | 206), "{said:?}");
        }
        let (code, ..) = asked(Method::POST, &[("if-none-match", "*")]).await;
        assert_eq!(code, 412);
        let (_, headers, _) = asked(Method::GET, &[("range", "bytes=2-3")]).await;
        assert_eq!(headers["content-range"], "bytes 2-3/10");
    }

    #[tokio::test]
    async fn several_parts() {
        let (code, headers, text) = asked(Method::GET, &[("range", "bytes=0-1,4-5")]).await;
        assert_eq!(code, 206);
        let kind = headers["content-type"].to_str().unwrap();
        let boundary = kind
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        let part = |place: &str, body: &str| {
            format!(
                "--{boundary}\r\nContent-Range: bytes {place}/10\r\nContent-Type: application/json\r\n\r\n{body}\r\n"
            )
        };
        let expected = format!(
            "{}{}--{boundary}--\r\n",
            part("0-1", "01"),
            part("4-5", "45")
        );
        assert_eq!((text, boundary.len()), (expected, 60));
    }
}
