//! Counts HTTP/2 frames that carry no request. They cost the client little and the server some work, so they are
//! limited.

use std::time::Duration;

use tokio::time::Instant;

const PREFACE: usize = 24;
const HEAD: usize = 9;
/// What frames count in so much time …
const WINDOW: Duration = Duration::from_secs(10);
/// … may not be more than this.
const MOST: u64 = 100_000;

/// What comes on a connection, seen as frames.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes that are no frame's head.
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
    since: Instant,
    count: u64,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self {
            skip: PREFACE,
            head: [0; HEAD],
            filled: 0,
            since: Instant::now(),
            count: 0,
        }
    }

    /// False: the client sends too much that is of no use.
    pub(super) fn may_go_on(&mut self, mut bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let now = Instant::now();
        if now.duration_since(self.since) > WINDOW {
            self.since = now;
            self.count = 0;
        }
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = bytes.len().min(HEAD - self.filled);
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD {
                self.filled = 0;
                let [high, middle, low, kind, ..] = self.head;
                self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.count += weight(kind, self.skip);
            }
        }
        self.count <= MOST
    }
}

/// Clients that download much send many updates of windows.
fn weight(kind: u8, length: usize) -> u64 {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const WINDOW_UPDATE: u8 = 8;
    const CONTINUATION: u8 = 9;
    match kind {
        HEADERS => 0,
        DATA | CONTINUATION if length > 0 => 0,
        WINDOW_UPDATE => 1,
        // Among them PING, SETTINGS, PRIORITY, RST_STREAM and what nobody knows.
        _ => 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = length.to_be_bytes();
        let mut frame = vec![high, middle, low, kind, 0, 0, 0, 0, 1];
        frame.resize(HEAD + length, 0);
        frame
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_much_that_asks_for_nothing() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        // Kinds, lengths, and how many of them pass at once.
        for (kind, length, most) in [
            (6, 8, 10_000),
            (4, 0, 10_000),
            (3, 4, 10_000),
            (0, 0, 10_000),
            (200, 70_000, 10_000),
            (8, 4, 100_000),
            (0, 1, usize::MAX),
            (1, 100, usize::MAX),
        ] {
            let mut frames = Frames::new();
            assert!(frames.may_go_on(&[b'x'; PREFACE]));
            let one = frame(kind, length);
            for n in 1..=100_001.min(most.saturating_add(1)) {
                // However they are cut.
                let (first, second) = one.split_at(random.usize(..=one.len()));
                let passes = frames.may_go_on(first) && frames.may_go_on(second);
                assert_eq!(passes, n <= most, "{kind} {n}");
            }
            tokio::time::advance(WINDOW * 2).await;
            assert!(frames.may_go_on(&one));
        }
    }
}
