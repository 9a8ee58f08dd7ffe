//! Response bodies: whole, streamed in chunks while they are rendered, or an event stream.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::counters::{Counters, Gauge};
use super::response::Failure;

/// Largest chunk from the rendering thread to the connection.
pub const CHUNK_SIZE: usize = 64 << 10;
/// The room that a short answer gets.
const FIRST: usize = 4 << 10;

/// From the rendering thread to the connection.
#[derive(Debug)]
pub enum Chunk {
    Data(Bytes),
    /// Everything was sent. If the channel closes without it, rendering has failed.
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
        rest: mpsc::Receiver<Chunk>,
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
    pub fn endless(rest: mpsc::Receiver<Chunk>) -> Self {
        Self::line(VecDeque::new(), rest, None)
    }

    fn line(
        first: VecDeque<Bytes>,
        rest: mpsc::Receiver<Chunk>,
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
                        Some(Chunk::Data(bytes)) => Some(bytes),
                        Some(Chunk::End) => {
                            *over = true;
                            None
                        }
                        // The client must not take half an answer for a whole one.
                        Some(Chunk::Failed(_)) | None => {
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

/// Collects what is written into chunks and sends them.
#[derive(Debug)]
struct ChunkWriter {
    buffer: Vec<u8>,
    /// A chunk was sent, so the answer is long.
    is_long: bool,
    out: mpsc::Sender<Chunk>,
    runtime: Handle,
    deadline: Instant,
}

impl ChunkWriter {
    fn send(&mut self) -> io::Result<()> {
        let full = std::mem::take(&mut self.buffer);
        self.is_long = true;
        self.hand_over(Chunk::Data(full.into()))
    }

    /// Waits for the reader, with a deadline: a slow one must not hold this thread for ever.
    fn hand_over(&self, piece: Chunk) -> io::Result<()> {
        let piece = match self.out.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(piece)) => piece,
        };
        let sent = async { tokio::time::timeout_at(self.deadline, self.out.send(piece)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_SIZE - self.buffer.len();
        let taken = &bytes[..bytes.len().min(room)];
        if self.buffer.capacity() - self.buffer.len() < taken.len() {
            let is_short = self.buffer.is_empty() && !self.is_long;
            let room = if is_short {
                FIRST.max(taken.len())
            } else {
                CHUNK_SIZE
            };
            self.buffer.reserve_exact(room - self.buffer.len());
        }
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() == CHUNK_SIZE {
            self.send()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Renders an answer on a blocking thread. A short one is returned whole; a long one is streamed. A failure must come
/// before the first byte. `longest`: an answer is cut off if the client takes longer to fetch it.
pub async fn render_streaming<F>(longest: Duration, make: F) -> Result<Body, Failure>
where
    F: FnOnce(&mut dyn Write) -> Result<(), Failure> + Send + 'static,
{
    // One piece waits while the next is made.
    let (out, mut pieces) = mpsc::channel(1);
    let deadline = Instant::now() + longest;
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut writer = ChunkWriter {
            buffer: Vec::new(),
            is_long: false,
            out,
            runtime,
            deadline,
        };
        let last = match make(&mut writer) {
            Ok(()) if writer.buffer.is_empty() => Chunk::End,
            Ok(()) => match writer.send() {
                Ok(()) => Chunk::End,
                Err(_) => return,
            },
            Err(failure) => Chunk::Failed(failure),
        };
        // Nobody is listening any more: nothing is lost.
        let _ = writer.hand_over(last);
    });
    let mut first = VecDeque::new();
    while first.len() < 2 {
        match pieces.recv().await {
            Some(Chunk::Data(bytes)) => first.push_back(bytes),
            Some(Chunk::End) => return Ok(Body::chunks(first.into())),
            Some(Chunk::Failed(failure)) => return Err(failure),
            None => return Err(Failure::defect()),
        }
    }
    Ok(Body::line(first, pieces, Some(deadline)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use http_body_util::BodyExt;

    const MAX_STREAM_TIME: Duration = Duration::from_secs(60);

    async fn text(body: Body) -> Result<Bytes, io::Error> {
        Ok(body.collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn short_answers_have_a_length() {
        let body = render_streaming(MAX_STREAM_TIME, |out| {
            out.write_all(b"ok").map_err(Failure::from)
        })
        .await
        .unwrap();
        assert_eq!(body.len(), Some(2));
        assert_eq!(text(body).await.unwrap(), "ok");
    }

    #[tokio::test]
    async fn long_answers_come_in_pieces() {
        let body = render_streaming(MAX_STREAM_TIME, |out| {
            for _ in 0..1000 {
                out.write_all(&[b'x'; 1000]).map_err(Failure::from)?;
            }
            Ok(())
        });
        let body = body.await.unwrap();
        assert_eq!(body.len(), None);
        assert_eq!(text(body).await.unwrap().len(), 1_000_000);
    }

    /// However slow the reader, rendering is at most a few chunks ahead.
    #[tokio::test]
    async fn makers_wait_for_readers() {
        const ALL: usize = 100 * CHUNK_SIZE;
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        let body = render_streaming(MAX_STREAM_TIME, move |out| {
            for _ in 0..ALL / 1000 {
                out.write_all(&[b'x'; 1000])?;
                counted.fetch_add(1000, Ordering::SeqCst);
            }
            Ok(())
        });
        let mut body = body.await.unwrap();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let ahead = written.load(Ordering::SeqCst).saturating_sub(read);
            assert!(
                ahead <= 5 * CHUNK_SIZE,
                "{ahead} bytes were made and not read"
            );
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= CHUNK_SIZE);
            read += piece.len();
        }
        assert_eq!(read, ALL / 1000 * 1000);
    }

    #[tokio::test]
    async fn failures_before_and_after_the_first_byte() {
        let refused =
            render_streaming(MAX_STREAM_TIME, |_| Err(Failure::internal("no such thing"))).await;
        assert_eq!(refused.unwrap_err().text, "no such thing");
        let died = render_streaming(MAX_STREAM_TIME, |_| panic!("defect")).await;
        assert_eq!(died.unwrap_err().status, 500);
        let cut = render_streaming(MAX_STREAM_TIME, |out| {
            out.write_all(&[0; 4 * CHUNK_SIZE]).map_err(Failure::from)?;
            out.write_all(&[0; 4 * CHUNK_SIZE]).map_err(Failure::from)?;
            out.write_all(&[0; 4 * CHUNK_SIZE]).map_err(Failure::from)?;
            panic!("defect")
        });
        text(cut.await.unwrap()).await.unwrap_err();
    }
}
