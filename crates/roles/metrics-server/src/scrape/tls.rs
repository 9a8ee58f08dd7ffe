//! TLS with a kubelet, for pages that come in one go from thousands of connections.
//!
//! The library's usual stream takes four kilobytes off the network at a time, into room that it makes larger step by
//! step. Here it is given all that has come, in room that is lent for the scrape, and decrypts that where it lies.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A page of thirty pods, or the longest record there can be.
const ROOM: usize = 32 * 1024;
/// The most that an unfinished message may take, as in a handshake with many certificates.
const LARGEST_ROOM: usize = 128 * 1024;
/// For a request, encrypted.
const LITTLE: usize = 4 * 1024;

pub(super) struct TlsStream {
    tcp: TcpStream,
    session: UnbufferedClientConnection,
    /// What has come and is not decrypted yet: `room[from..to]`.
    room: Vec<u8>,
    from: usize,
    to: usize,
    /// Decrypted, and more than was asked for.
    rest: Vec<u8>,
    /// Encrypted, and not sent yet.
    out: Vec<u8>,
    /// The other side has said that it will say no more.
    ended: bool,
}

/// What the session is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    /// Something was decrypted.
    Data,
    /// There is something to be sent before anything else.
    Send,
    /// It cannot go on without more from the other side; requests can be sent.
    Request,
    /// The same, in the middle of the handshake.
    Blocked,
    End,
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsStream")
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}

impl TlsStream {
    /// Shakes hands, with room lent for that and the first answer.
    pub async fn connect(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        tcp: TcpStream,
        room: Vec<u8>,
    ) -> io::Result<Self> {
        let session = UnbufferedClientConnection::new(config, name).map_err(wrong)?;
        let mut stream = Self {
            tcp,
            session,
            room: Vec::new(),
            from: 0,
            to: 0,
            rest: Vec::new(),
            out: Vec::new(),
            ended: false,
        };
        stream.lend(room);
        std::future::poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
    }

    /// Lends it room to read in large pieces.
    pub fn lend(&mut self, mut room: Vec<u8>) {
        if self.room.is_empty() {
            room.resize(ROOM, 0);
            self.room = room;
        }
    }

    /// Takes the room back; `false`: there was something in it, so that nothing more can be read.
    pub fn reclaim(&mut self) -> (Vec<u8>, bool) {
        let is_empty = self.from == self.to && self.rest.is_empty();
        (self.from, self.to) = (0, 0);
        (std::mem::take(&mut self.room), is_empty)
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.turn(&mut ReadBuf::new(&mut []))? {
                // Something may come with the end of the handshake; it is for later.
                Ready::Data => {}
                Ready::Send => ready!(self.poll_send(context))?,
                Ready::Request => return Poll::Ready(Ok(())),
                Ready::Blocked => ready!(self.poll_more(context))?,
                Ready::End => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    /// Tells the other side what is wrong with it, if it happens to be listening.
    fn say_why(&mut self) {
        let came = &mut self.room[self.from..self.to];
        let status = self.session.process_tls_records(came);
        if let Ok(ConnectionState::EncodeTlsData(mut alert)) = status.state {
            self.out.resize(LITTLE, 0);
            let length = alert.encode(&mut self.out).unwrap_or(0);
            let _ = self.tcp.try_write(&self.out[..length]);
        }
    }

    /// Lets the session work on what is there. What it decrypts goes to `into`, and to `rest` when that is full.
    fn turn(&mut self, into: &mut ReadBuf<'_>) -> io::Result<Ready> {
        loop {
            let came = &mut self.room[self.from..self.to];
            let UnbufferedStatus { mut discard, state } = self.session.process_tls_records(came);
            let state = match state {
                Ok(state) => state,
                Err(error) => {
                    self.from += discard;
                    self.say_why();
                    return Err(wrong(error));
                }
            };
            let ready = match state {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(wrong)?;
                        discard += record.discard;
                        let fits = into.remaining().min(record.payload.len());
                        into.put_slice(&record.payload[..fits]);
                        self.rest.extend_from_slice(&record.payload[fits..]);
                    }
                    Some(Ready::Data)
                }
                ConnectionState::EncodeTlsData(mut message) => {
                    append(&mut self.out, |room| match message.encode(room) {
                        Err(EncodeError::InsufficientSize(needed)) => Ok(Err(needed)),
                        other => other.map(Ok).map_err(io::Error::other),
                    })?;
                    None
                }
                // It goes out before anything else is done.
                ConnectionState::TransmitTlsData(messages) => {
                    messages.done();
                    Some(Ready::Send)
                }
                ConnectionState::WriteTraffic(_) => Some(Ready::Request),
                ConnectionState::BlockedHandshake => Some(Ready::Blocked),
                ConnectionState::PeerClosed | ConnectionState::Closed => Some(Ready::End),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            self.from += discard;
            if self.from == self.to {
                (self.from, self.to) = (0, 0);
            }
            if let Some(ready) = ready {
                return Ok(ready);
            }
        }
    }

    /// Whether there is another whole record, with no more in it than this.
    fn next_fits(&self, remaining: usize) -> bool {
        let [_, _, _, high, low, record @ ..] = &self.room[self.from..self.to] else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        length <= remaining && length <= record.len()
    }

    /// Reads more into the room.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What could not be sent earlier goes out meanwhile.
        let _ = self.poll_send(context)?;
        if self.from > 0 {
            self.room.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        if self.to == self.room.len() {
            if self.to >= LARGEST_ROOM {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            self.room.resize(self.to + ROOM, 0);
        }
        let mut free = ReadBuf::new(&mut self.room[self.to..]);
        ready!(Pin::new(&mut self.tcp).poll_read(context, &mut free))?;
        match free.filled().len() {
            // Whoever ends it in good order says so before.
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            length => {
                self.to += length;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut self.tcp).poll_write(context, &self.out))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                // Mostly that was all.
                sent if sent == self.out.len() => self.out = Vec::new(),
                sent => drop(self.out.drain(..sent)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Has something written to the end of `out`, with as much room as it turns out to need.
fn append(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> io::Result<Result<usize, InsufficientSizeError>>,
) -> io::Result<()> {
    let before = out.len();
    let mut room = LITTLE;
    loop {
        out.resize(before + room, 0);
        match write(&mut out[before..])? {
            Ok(length) => {
                out.truncate(before + length);
                return Ok(());
            }
            Err(InsufficientSizeError { required_size }) if required_size > room => {
                room = required_size;
            }
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// As the library's own stream wraps them.
fn wrong(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            let length = into.remaining().min(this.rest.len());
            into.put_slice(&this.rest[..length]);
            this.rest.drain(..length);
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        while !this.ended {
            let ready = this.turn(into)?;
            let came = into.filled().len() > before;
            match ready {
                // Some send a page in many small records.
                Ready::Data if came && !this.next_fits(into.remaining()) => break,
                Ready::Data => {}
                Ready::End => this.ended = true,
                _ if came => break,
                Ready::Send => ready!(this.poll_send(context))?,
                Ready::Request | Ready::Blocked => ready!(this.poll_more(context))?,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_send(context))?;
        let came = &mut this.room[this.from..this.to];
        let UnbufferedStatus { discard, state } = this.session.process_tls_records(came);
        let ConnectionState::WriteTraffic(mut traffic) = state.map_err(wrong)? else {
            // Between answers there is nothing to be said.
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        append(&mut this.out, |room| match traffic.encrypt(bytes, room) {
            Err(EncryptError::InsufficientSize(needed)) => Ok(Err(needed)),
            other => other.map(Ok).map_err(io::Error::other),
        })?;
        this.from += discard;
        // It is taken, whether or not it can be sent at once.
        let _ = this.poll_send(context)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
