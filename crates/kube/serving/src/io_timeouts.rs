//! Read-header, idle and write timeouts of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::frames::Frames;
use super::share::{HeldBytes, SMALL, Seat};

#[derive(Debug, Clone, Copy)]
pub struct IoTimeouts {
    pub head: Duration,
    pub idle: Duration,
    pub stalled: Duration,
    /// HTTP/2: bytes between requests need not be the beginning of one.
    pub frames: bool,
}

/// The requests being answered on one connection; while there is one, nothing is expected from the client.
#[derive(Debug, Clone, Default)]
pub struct Busy(Arc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    begun: AtomicUsize,
    /// Whose answer has begun, if only with its head.
    answered: AtomicUsize,
    ended: AtomicUsize,
    /// Who waits for bytes meanwhile: the time to be idle begins when the answer is over.
    reader: Mutex<Option<Waker>>,
    /// Since when the client has taken nothing of what is being sent to it.
    stalled: Mutex<Option<Instant>>,
    /// Requests of whose answers a piece was handed on, and when; the next has not been asked for.
    given: Mutex<Vec<(usize, Instant)>>,
    /// Bytes of answers that were handed on since all was last written to the client.
    untaken: AtomicUsize,
    /// Who has more of an answer, and waits until that is written.
    feeder: Mutex<Option<Waker>>,
}

/// More than this is not handed on before it is written: what waits for a client that does not read is memory.
const MOST_UNTAKEN: usize = 32 << 10;

#[derive(Debug)]
pub struct BusyGuard {
    requests: Arc<Requests>,
    number: usize,
}

impl Busy {
    pub fn begin(&self) -> BusyGuard {
        BusyGuard {
            number: self.0.begun.fetch_add(1, Ordering::AcqRel),
            requests: Arc::clone(&self.0),
        }
    }

    /// Returns when the client has not taken a piece of an answer for so long, or a little longer. On HTTP/2 the
    /// socket does not tell: a client can read it and still have no room for an answer.
    pub async fn untaken_for(&self, long: Duration) {
        loop {
            tokio::time::sleep(long / 4).await;
            let given = self.0.given.lock();
            if given.iter().any(|(_, since)| since.elapsed() >= long) {
                return;
            }
        }
    }

    fn begun(&self) -> usize {
        self.0.begun.load(Ordering::Acquire)
    }

    /// Nothing is going on here: no request is being answered, or its answer is not being taken.
    pub fn is_of_no_use(&self, stalled_for: Duration) -> bool {
        let stalled = *self.0.stalled.lock();
        !self.is_busy() || stalled.is_some_and(|since| since.elapsed() >= stalled_for)
    }

    /// Returns when no request was begun or answered for so long, or up to twice as long.
    pub async fn unused_for(&self, long: Duration) {
        loop {
            let (busy, begun) = (self.is_busy(), self.begun());
            tokio::time::sleep(long).await;
            if !busy && begun == self.begun() {
                return;
            }
        }
    }

    pub fn is_busy(&self) -> bool {
        self.begun() != self.0.ended.load(Ordering::Acquire)
    }

    /// The client, or its kernel, has taken all that was handed on.
    pub(super) fn all_is_written(&self) {
        self.0.untaken.store(0, Ordering::Release);
        if let Some(feeder) = self.0.feeder.lock().take() {
            feeder.wake();
        }
    }

    /// How many answers the service has begun.
    pub fn answered(&self) -> usize {
        self.0.answered.load(Ordering::Acquire)
    }

    /// True while busy; then the task is woken when that is over.
    fn wake_when_over(&self, cx: &Context<'_>) -> bool {
        if !self.is_busy() {
            return false;
        }
        *self.0.reader.lock() = Some(cx.waker().clone());
        // It may have ended before the waker was in place.
        self.is_busy()
    }
}

impl BusyGuard {
    /// The service has begun its answer.
    pub fn answer(&self) {
        self.requests.answered.fetch_add(1, Ordering::AcqRel);
    }

    /// False: the client is still to take what was handed on. The task is woken when it has.
    pub fn may_feed(&self, cx: &Context<'_>) -> bool {
        let has_room = || self.requests.untaken.load(Ordering::Acquire) < MOST_UNTAKEN;
        if has_room() {
            return true;
        }
        *self.requests.feeder.lock() = Some(cx.waker().clone());
        // It may have been written before the waker was in place.
        has_room()
    }

    /// A piece of the answer is handed on.
    pub fn feeds(&self, bytes: usize) {
        self.requests.untaken.fetch_add(bytes, Ordering::AcqRel);
        let mut given = self.requests.given.lock();
        given.push((self.number, Instant::now()));
    }

    /// There is room for the next piece.
    pub fn is_fed(&self) {
        let mut given = self.requests.given.lock();
        given.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.is_fed();
        self.requests.ended.fetch_add(1, Ordering::AcqRel);
        if let Some(reader) = self.requests.reader.lock().take() {
            reader.wake();
        }
    }
}

#[derive(Debug)]
pub struct TimeoutIo<S> {
    inner: S,
    patience: IoTimeouts,
    busy: Busy,
    /// When what is being waited for must have come.
    reading: Wait,
    writing: Wait,
    /// Requests seen so far. A first one is expected at once; a further one may take its time.
    seen: usize,
    /// Part of the next head has come.
    begun: bool,
    seat: Arc<Seat>,
    /// The head that is coming, where it is long.
    head: Head,
    frames: Frames,
    /// What was taken since a write had to wait.
    taken: usize,
}

#[derive(Debug, Default)]
struct Head {
    bytes: u64,
    counted: Vec<HeldBytes>,
}

/// A client that takes less than this in the time it has does not really read.
const TAKEN_AT_LEAST: usize = 64 << 10;

/// A deadline that is set once and stays until it is cleared.
#[derive(Debug, Default)]
struct Wait(Option<Pin<Box<Sleep>>>);

impl Wait {
    fn is_over(&mut self, patience: Duration, cx: &mut Context<'_>) -> bool {
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        sleep.as_mut().poll(cx).is_ready()
    }

    /// True where there was something to clear.
    fn clear(&mut self) -> bool {
        self.0.take().is_some()
    }
}

impl<S> TimeoutIo<S> {
    pub(super) fn new(inner: S, patience: IoTimeouts, busy: Busy, seat: Arc<Seat>) -> Self {
        Self {
            inner,
            patience,
            busy,
            reading: Wait::default(),
            writing: Wait::default(),
            seen: 0,
            begun: false,
            seat,
            head: Head::default(),
            frames: Frames::new(),
            taken: 0,
        }
    }

    /// Heads come before anybody knows whose they are: long ones are counted.
    fn read_of_head(&mut self, bytes: usize) -> io::Result<()> {
        let before = self.head.bytes;
        self.head.bytes = before.saturating_add(bytes as u64);
        if self.head.bytes > SMALL {
            let counted = self.seat.head(self.head.bytes - before);
            self.head.counted.push(counted.map_err(io::Error::other)?);
        }
        Ok(())
    }

    fn wrote(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &poll {
            self.taken = self.taken.saturating_add(*written);
        }
        let enough = self.taken >= TAKEN_AT_LEAST;
        self.progress(cx, poll, enough)
    }

    /// How it went on. A byte now and then is no progress; the time starts anew when all that was written has gone out,
    /// or a piece of it.
    fn progress<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
        enough: bool,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            if enough {
                self.taken = 0;
                if self.writing.clear() {
                    *self.busy.0.stalled.lock() = None;
                }
            }
            return poll;
        }
        self.busy.0.stalled.lock().get_or_insert_with(Instant::now);
        match self.writing.is_over(self.patience.stalled, cx) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let poll = Pin::new(&mut this.inner).poll_read(cx, buf);
        if this.patience.frames && !this.frames.may_go_on(&buf.filled()[before..]) {
            return Poll::Ready(Err(io::Error::other("too many frames of no use")));
        }
        let seen = this.busy.begun();
        if this.seen != seen {
            this.seen = seen;
            this.begun = false;
            this.reading.clear();
            this.head = Head::default();
        }
        // Bodies have a deadline of their own.
        if this.busy.wake_when_over(cx) {
            this.reading.clear();
            return poll;
        }
        if poll.is_ready() {
            if !this.patience.frames {
                this.read_of_head(buf.filled().len() - before)?;
            }
            if !this.begun && !this.patience.frames && buf.filled().len() > before {
                this.begun = true;
                this.reading.clear();
            }
            return poll;
        }
        let patience = match this.begun || this.seen == 0 {
            true => this.patience.head,
            false => this.patience.idle,
        };
        match this.reading.is_over(patience, cx) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.wrote(cx, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        if poll.is_ready() {
            self.busy.all_is_written();
        }
        self.progress(cx, poll, true)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.progress(cx, poll, true)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
