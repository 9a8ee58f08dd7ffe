//! How a person looks at protection and steps in: one line of JSON over a Unix socket that only root can open, one line
//! back. `plimsoll qos` speaks it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_client::shutdown::Shutdown;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::Protection;

/// A request is no longer.
const LONGEST: u64 = 64 << 10;
/// Who has connected asks within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many may ask at the same time.
const MOST: usize = 8;

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase")]
pub enum Request {
    /// How every target stands, the gate, and the mode.
    Status,
    /// What the strategies want now.
    Plan,
    /// Where the kernel has something else than what is wanted.
    Diff,
    /// The story after a line's number.
    Journal {
        #[serde(default)]
        after: u64,
        #[serde(default = "many")]
        most: usize,
    },
    /// Leaves a cgroup (with all below it) or a file alone.
    Hold {
        what: String,
        /// `None`: until it is released.
        #[serde(default)]
        seconds: Option<u64>,
    },
    Release {
        what: String,
    },
    /// Gives everything back and only observes from then on.
    Restore,
    /// Gives a part back and holds it: an asker's values, a cgroup or a file.
    Undo {
        what: String,
        #[serde(default)]
        seconds: Option<u64>,
    },
    /// `off`, `observe` or `enforce`, until the agent is started again.
    Mode {
        mode: String,
    },
}

fn many() -> usize {
    100
}

impl Request {
    /// It changes nothing, so that whoever may read pages may ask it.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Status | Self::Plan | Self::Diff | Self::Journal { .. }
        )
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    Ok(Value),
    Error(String),
}

/// Listens on a socket that belongs to root. What an earlier process left there is removed.
pub fn listen(path: &Path) -> std::io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::AddrInUse,
            "another agent listens there",
        ));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers until told to stop, then removes the socket.
pub async fn serve(
    listener: UnixListener,
    path: PathBuf,
    protection: Protection,
    shutdown: Shutdown,
) {
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(MOST));
    loop {
        let accepted = tokio::select! {
            () = shutdown.begins() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = std::sync::Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let protection = protection.clone();
        tokio::spawn(async move {
            let _place = place;
            // Who does not ask, or does not take the answer, is let go.
            let _ = tokio::time::timeout(2 * PATIENCE, answer(stream, &protection)).await;
        });
    }
    let _ = std::fs::remove_file(path);
}

async fn answer(stream: UnixStream, protection: &Protection) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(LONGEST))
        .read_line(&mut line)
        .await?;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => protection.ask(request).await,
        Err(error) => Answer::Error(format!("no such request: {error}")),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_plain_json() {
        for (text, expected) in [
            (r#"{"do":"status"}"#, Request::Status),
            (
                r#"{"do":"journal"}"#,
                Request::Journal {
                    after: 0,
                    most: 100,
                },
            ),
            (
                r#"{"do":"hold","what":"/kubepods","seconds":60}"#,
                Request::Hold {
                    what: "/kubepods".into(),
                    seconds: Some(60),
                },
            ),
        ] {
            let request: Request = serde_json::from_str(text).unwrap();
            assert_eq!(request, expected);
            let looks = matches!(expected, Request::Status | Request::Journal { .. });
            assert_eq!(request.only_looks(), looks);
        }
        assert!(serde_json::from_str::<Request>(r#"{"do":"explode"}"#).is_err());
    }

    #[tokio::test]
    async fn the_socket_is_roots_alone_and_a_dead_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/protect.sock");
        let first = listen(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = listen(&path).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        drop(first);
        listen(&path).unwrap();
    }
}
