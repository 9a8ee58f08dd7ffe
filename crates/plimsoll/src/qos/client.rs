//! One line to the agent, one line back.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plimsoll_agent::protect::control::{Answer, Request};

const PATIENCE: Duration = Duration::from_secs(15);
/// No answer is longer.
const LONGEST: u64 = 256 << 20;

/// `None`: no agent listens there.
pub fn ask(socket: &Path, request: &Request) -> Result<Option<Answer>> {
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("{} is for root only; run this as root", socket.display())
        }
        Err(error) => {
            return Err(error).with_context(|| format!("connect to {}", socket.display()));
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut text = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut text)?;
    if text.is_empty() {
        bail!("the agent closed the connection; it may be busy, try again");
    }
    let answer = serde_json::from_str(&text)
        .context("the agent's answer makes no sense; is it of another version?")?;
    Ok(Some(answer))
}
