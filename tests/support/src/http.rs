//! HTTP/1.1 GET over a plain socket: enough for the agent's surface, and none of the agent's own code.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Long enough for a loaded machine under emulation, short enough that a hung server fails the test and not the run.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Names are lower-cased.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.body).context("body is not UTF-8")
    }

    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| {
            let start = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]);
            format!("body is not JSON: {start:?}")
        })
    }
}

/// One GET on a connection of its own.
pub fn get(address: SocketAddr, path: &str) -> Result<Response> {
    Connection::open(address)?.get(path)
}

/// One GET that must answer 200.
pub fn get_ok(address: SocketAddr, path: &str) -> Result<Response> {
    let response = get(address, path)?;
    ensure!(
        response.status == 200,
        "GET {path} answered {}: {}",
        response.status,
        String::from_utf8_lossy(&response.body)
    );
    Ok(response)
}

/// A connection that is kept open between requests.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)
            .with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        // A scrape is megabytes: with std's 8 KiB the client's own system calls would be a good part of the time.
        Ok(Self {
            stream: BufReader::with_capacity(256 * 1024, stream),
            address,
        })
    }

    pub fn get(&mut self, path: &str) -> Result<Response> {
        let mut body = Vec::new();
        let (status, headers) = self.get_into(path, &mut body)?;
        Ok(Response {
            status,
            headers,
            body,
        })
    }

    /// Replaces what `body` holds, so that a loop of scrapes measures the server and not this client's allocator.
    pub fn get_into(
        &mut self,
        path: &str,
        body: &mut Vec<u8>,
    ) -> Result<(u16, BTreeMap<String, String>)> {
        self.ask_into(path, "", body)
    }

    /// The same with further headers, whole lines.
    pub fn ask_into(
        &mut self,
        path: &str,
        more: &str,
        body: &mut Vec<u8>,
    ) -> Result<(u16, BTreeMap<String, String>)> {
        body.clear();
        let (status, headers) = self.request(path, more)?;
        if is_chunked(&headers) {
            while self.chunk(body)? {}
        } else if let Some(length) = headers.get("content-length") {
            let length: usize = length
                .parse()
                .with_context(|| format!("content-length {length:?}"))?;
            body.resize(length, 0);
            self.stream.read_exact(body).context("read the body")?;
        } else {
            self.stream.read_to_end(body).context("read the body")?;
        }
        Ok((status, headers))
    }

    /// Turns the connection into an endless body that is read line by line.
    pub fn stream(mut self, path: &str) -> Result<Lines> {
        let (status, headers) = self.request(path, "")?;
        ensure!(status == 200, "GET {path} answered {status}");
        ensure!(
            is_chunked(&headers),
            "GET {path}: a stream must be chunked, headers are {headers:?}"
        );
        Ok(Lines {
            connection: self,
            pending: Vec::new(),
        })
    }

    fn request(&mut self, path: &str, more: &str) -> Result<(u16, BTreeMap<String, String>)> {
        let host = self.address;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n");
        self.stream
            .get_mut()
            .write_all(head.as_bytes())
            .with_context(|| format!("send GET {path}"))?;
        self.head().with_context(|| format!("answer to GET {path}"))
    }

    fn head(&mut self) -> Result<(u16, BTreeMap<String, String>)> {
        let status_line = self.line()?;
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .with_context(|| format!("status line {status_line:?}"))?;
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((status, headers));
            }
            let Some((name, value)) = line.split_once(':') else {
                bail!("header line {line:?}");
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }

    /// Appends one chunk; `false` at the last one.
    fn chunk(&mut self, body: &mut Vec<u8>) -> Result<bool> {
        let size = self.line()?;
        let digits = size.split(';').next().unwrap_or_default();
        let length = usize::from_str_radix(digits.trim(), 16)
            .with_context(|| format!("chunk size {size:?}"))?;
        let start = body.len();
        body.resize(start + length, 0);
        self.stream
            .read_exact(&mut body[start..])
            .context("read a chunk")?;
        let end = self.line()?;
        ensure!(end.is_empty(), "after a chunk came {end:?}");
        Ok(length > 0)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line)?;
        ensure!(read > 0, "connection closed");
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn is_chunked(headers: &BTreeMap<String, String>) -> bool {
    headers
        .get("transfer-encoding")
        .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

/// A streamed body, line by line.
#[derive(Debug)]
pub struct Lines {
    connection: Connection,
    pending: Vec<u8>,
}

impl Lines {
    /// Waits at most the client's timeout; `None` when the server ended the stream. Empty lines are left out.
    pub fn next_line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let line = String::from_utf8(line).context("line is not UTF-8")?;
                if !line.trim().is_empty() {
                    return Ok(Some(line.trim().to_owned()));
                }
                continue;
            }
            // cAdvisor's stream is objects one after the other; a whole object may come without a newline yet.
            if !self.pending.is_empty()
                && serde_json::from_slice::<serde_json::Value>(&self.pending).is_ok()
            {
                let line = String::from_utf8(std::mem::take(&mut self.pending))?;
                return Ok(Some(line.trim().to_owned()));
            }
            if !self.connection.chunk(&mut self.pending)? {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers each connection with the same bytes, then closes.
    fn serve(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn body_by_length() {
        let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let response = get_ok(address, "/").unwrap();
        assert_eq!(response.text().unwrap(), "hello");
        assert_eq!(response.headers["content-length"], "5");
    }

    #[test]
    fn body_in_chunks() {
        let address = serve(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
        );
        assert_eq!(get(address, "/").unwrap().text().unwrap(), "hello");
    }

    #[test]
    fn body_until_close() {
        let address = serve("HTTP/1.1 500 Internal Server Error\r\n\r\nbroken\n");
        let error = get_ok(address, "/x").unwrap_err().to_string();
        assert_eq!(error, "GET /x answered 500: broken\n");
    }

    #[test]
    fn stream_of_lines_over_chunk_borders() {
        let address = serve(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n5\r\n:1}\n{\r\n7\r\n\"b\":2}\n\r\n0\r\n\r\n",
        );
        let mut lines = Connection::open(address)
            .unwrap()
            .stream("/events")
            .unwrap();
        assert_eq!(lines.next_line().unwrap().unwrap(), "{\"a\":1}");
        assert_eq!(lines.next_line().unwrap().unwrap(), "{\"b\":2}");
        assert_eq!(lines.next_line().unwrap(), None);
    }
}
