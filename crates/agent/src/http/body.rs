//! What goes back to the client: at once, in pieces as they are made, or for as long as there are events.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::counters::{Counters, Gauge};
use super::reply::Failure;

/// Pieces of this size travel from the thread that makes them to the connection.
const PIECE: usize = 64 << 10;
/// An answer that a client takes longer than this to fetch is cut off: the thread that makes it is waiting.
const LONGEST: Duration = Duration::from_secs(120);

/// On the way from the maker to the connection.
#[derive(Debug)]
pub enum Piece {
    Data(Bytes),
    /// Everything was sent. Without this, the end of the line means that the maker died.
    End,
    Failed(Failure),
}

#[derive(Debug)]
pub struct Body {
    kind: Kind,
    /// Counts what is sent, and the request as in flight until the last byte.
    account: Option<(Arc<Counters>, Gauge)>,
}

#[derive(Debug)]
enum Kind {
    Chunks(VecDeque<Bytes>),
    Line {
        first: VecDeque<Bytes>,
        rest: mpsc::Receiver<Piece>,
        deadline: Option<Instant>,
        over: bool,
    },
}

impl Body {
    pub fn empty() -> Self {
        Self::chunks(Vec::new())
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::chunks(vec![bytes.into()])
    }

    pub fn chunks(chunks: Vec<Bytes>) -> Self {
        let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty());
        Self {
            kind: Kind::Chunks(chunks.collect()),
            account: None,
        }
    }

    /// For as long as the other end sends.
    pub fn endless(rest: mpsc::Receiver<Piece>) -> Self {
        Self::line(VecDeque::new(), rest, None)
    }

    fn line(
        first: VecDeque<Bytes>,
        rest: mpsc::Receiver<Piece>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            kind: Kind::Line {
                first,
                rest,
                deadline,
                over: false,
            },
            account: None,
        }
    }

    pub fn accounted(mut self, counters: Arc<Counters>, request: Gauge) -> Self {
        self.account = Some((counters, request));
        self
    }

    /// Known in full, and how long.
    pub fn len(&self) -> Option<usize> {
        match &self.kind {
            Kind::Chunks(chunks) => Some(chunks.iter().map(Bytes::len).sum()),
            Kind::Line { .. } => None,
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = match &mut self.kind {
            Kind::Chunks(chunks) => chunks.pop_front(),
            Kind::Line {
                first,
                rest,
                deadline,
                over,
            } => {
                if deadline.is_some_and(|at| Instant::now() > at) {
                    return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
                }
                match first.pop_front() {
                    Some(bytes) => Some(bytes),
                    None if *over => None,
                    None => match ready!(rest.poll_recv(cx)) {
                        Some(Piece::Data(bytes)) => Some(bytes),
                        Some(Piece::End) => {
                            *over = true;
                            None
                        }
                        // The client must not take half an answer for a whole one.
                        Some(Piece::Failed(_)) | None => {
                            return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
                        }
                    },
                }
            }
        };
        if let (Some(bytes), Some((counters, _))) = (&next, &self.account) {
            counters.sent(bytes.len());
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Chunks(chunks) => chunks.is_empty(),
            Kind::Line { first, over, .. } => *over && first.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.len() {
            Some(len) => SizeHint::with_exact(len as u64),
            None => SizeHint::default(),
        }
    }
}

/// Gathers what is written into pieces and sends them off.
#[derive(Debug)]
struct Pieces {
    buffer: Vec<u8>,
    out: mpsc::Sender<Piece>,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE));
        let sent = self.out.blocking_send(Piece::Data(full.into()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes an answer on a thread that may wait. A short one comes back whole; of a long one only the beginning is ever
/// in memory. A failure must come before the first byte.
pub async fn made<F>(make: F) -> Result<Body, Failure>
where
    F: FnOnce(&mut dyn Write) -> Result<(), Failure> + Send + 'static,
{
    let (out, mut pieces) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        let mut writer = Pieces {
            buffer: Vec::with_capacity(4 << 10),
            out,
        };
        let last = match make(&mut writer) {
            Ok(()) if writer.buffer.is_empty() => Piece::End,
            Ok(()) => match writer.send() {
                Ok(()) => Piece::End,
                Err(_) => return,
            },
            Err(failure) => Piece::Failed(failure),
        };
        // Nobody is listening any more: nothing is lost.
        let _ = writer.out.blocking_send(last);
    });
    let mut first = VecDeque::new();
    while first.len() < 2 {
        match pieces.recv().await {
            Some(Piece::Data(bytes)) => first.push_back(bytes),
            Some(Piece::End) => return Ok(Body::chunks(first.into())),
            Some(Piece::Failed(failure)) => return Err(failure),
            None => return Err(Failure::defect()),
        }
    }
    let deadline = Instant::now() + LONGEST;
    Ok(Body::line(first, pieces, Some(deadline)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn text(body: Body) -> Result<Bytes, io::Error> {
        Ok(body.collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn short_answers_have_a_length() {
        let body = made(|out| out.write_all(b"ok").map_err(Failure::from))
            .await
            .unwrap();
        assert_eq!(body.len(), Some(2));
        assert_eq!(text(body).await.unwrap(), "ok");
    }

    #[tokio::test]
    async fn long_answers_come_in_pieces() {
        let body = made(|out| {
            for _ in 0..1000 {
                out.write_all(&[b'x'; 1000]).map_err(Failure::from)?;
            }
            Ok(())
        });
        let body = body.await.unwrap();
        assert_eq!(body.len(), None);
        assert_eq!(text(body).await.unwrap().len(), 1_000_000);
    }

    #[tokio::test]
    async fn failures_before_and_after_the_first_byte() {
        let refused = made(|_| Err(Failure::internal("no such thing"))).await;
        assert_eq!(refused.unwrap_err().text, "no such thing");
        let died = made(|_| panic!("defect")).await;
        assert_eq!(died.unwrap_err().status, 500);
        let cut = made(|out| {
            out.write_all(&[0; 4 * PIECE]).map_err(Failure::from)?;
            out.write_all(&[0; 4 * PIECE]).map_err(Failure::from)?;
            out.write_all(&[0; 4 * PIECE]).map_err(Failure::from)?;
            panic!("defect")
        });
        text(cut.await.unwrap()).await.unwrap_err();
    }
}
