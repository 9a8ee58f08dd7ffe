//! A TCP connection that is read in large pieces, and holds no room between answers.
//!
//! The TLS library reads four kilobytes at a time, each with a call of the kernel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const AHEAD: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct Wire {
    tcp: TcpStream,
    /// What was read and not asked for yet: `ahead[from..to]`.
    ahead: Vec<u8>,
    from: usize,
    to: usize,
}

impl Wire {
    pub fn new(tcp: TcpStream) -> Self {
        Self {
            tcp,
            ahead: Vec::new(),
            from: 0,
            to: 0,
        }
    }

    /// Lends it room to read ahead.
    pub fn lend(&mut self, mut room: Vec<u8>) {
        if self.ahead.is_empty() {
            room.resize(AHEAD, 0);
            self.ahead = room;
        }
    }

    /// Takes the room back. What was read ahead is lost: only to be done when nothing is expected.
    pub fn reclaim(&mut self) -> Vec<u8> {
        (self.from, self.to) = (0, 0);
        std::mem::take(&mut self.ahead)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.from == this.to {
            if this.ahead.len() <= into.remaining() {
                return Pin::new(&mut this.tcp).poll_read(context, into);
            }
            let mut room = ReadBuf::new(&mut this.ahead);
            match Pin::new(&mut this.tcp).poll_read(context, &mut room) {
                Poll::Ready(Ok(())) => (this.from, this.to) = (0, room.filled().len()),
                other => return other,
            }
        }
        let length = into.remaining().min(this.to - this.from);
        into.put_slice(&this.ahead[this.from..this.from + length]);
        this.from += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn everything_comes_through_with_room_and_without() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut wire = Wire::new(tcp);
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        for lent in [false, true, false] {
            if lent {
                wire.lend(Vec::new());
            }
            let (writing, reading) = tokio::join!(peer.write_all(&sent), async {
                let mut received = vec![0; sent.len()];
                for piece in received.chunks_mut(777) {
                    wire.read_exact(piece).await.unwrap();
                }
                received
            });
            writing.unwrap();
            assert!(reading == sent);
            assert_eq!(wire.reclaim().len(), if lent { AHEAD } else { 0 });
        }
    }
}
