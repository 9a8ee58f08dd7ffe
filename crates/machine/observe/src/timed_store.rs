//! The last minutes of samples of one container, compressed.
//!
//! Most figures of most containers do not change from one second to the next. Each sample is stored as its
//! differences from the one before, as zig-zag varints with runs of zeros folded into one byte, in chunks that can be
//! dropped whole when they grow too old. A quiet container's sample takes about ten bytes instead of three thousand.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_host::Timestamp;

use crate::sample::{Fields, Sample, Walk};

/// Samples in a chunk. Whole chunks are dropped, and decoding starts at a chunk.
const CHUNK: usize = 32;

#[derive(Debug)]
pub struct TimedStore {
    keep: Duration,
    chunks: VecDeque<Chunk>,
    /// The numbers of the newest sample, against which the next is encoded.
    last_row: Vec<u64>,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    samples: usize,
    last: Timestamp,
}

impl TimedStore {
    pub fn new(keep: Duration) -> Self {
        Self {
            keep,
            chunks: VecDeque::new(),
            last_row: Vec::new(),
        }
    }

    pub fn push(&mut self, sample: &mut Sample) {
        let full = self.chunks.back().is_none_or(|c| c.samples >= CHUNK);
        if full {
            self.start_chunk();
        }
        let Some(chunk) = self.chunks.back_mut() else {
            return;
        };
        let mut encoder = Encoder {
            row: &mut self.last_row,
            at: 0,
            out: &mut chunk.bytes,
            zeros: 0,
        };
        sample.walk(&mut encoder);
        encoder.finish();
        chunk.samples += 1;
        chunk.last = sample.at;
        self.forget(sample.at);
    }

    fn start_chunk(&mut self) {
        if let Some(finished) = self.chunks.back_mut() {
            finished.bytes.shrink_to_fit();
        }
        // Each chunk stands alone: its first sample differs from nothing.
        self.last_row.clear();
        let room = self.chunks.back().map_or(256, |c| c.bytes.len());
        self.chunks.push_back(Chunk {
            bytes: Vec::with_capacity(room),
            ..Chunk::default()
        });
    }

    /// Drops chunks whose every sample is too old.
    fn forget(&mut self, now: Timestamp) {
        let oldest = now.minus(self.keep);
        while self.chunks.len() > 1 && self.chunks.front().is_some_and(|c| c.last < oldest) {
            self.chunks.pop_front();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|c| c.bytes.capacity()).sum();
        chunks + self.last_row.capacity() * 8
    }

    /// Every kept sample, oldest first, that is not older than the retention.
    pub fn samples(&self) -> Vec<Sample> {
        self.newest(usize::MAX)
    }

    /// The newest `count` of them; only the chunks that hold them are unpacked.
    pub fn newest(&self, count: usize) -> Vec<Sample> {
        let mut out = Vec::new();
        let Some(newest) = self.chunks.back().map(|c| c.last) else {
            return out;
        };
        let oldest = newest.minus(self.keep);
        let mut held = 0;
        let needed = self.chunks.iter().rev().take_while(|chunk| {
            let more = held < count;
            held += chunk.samples;
            more
        });
        let first = self.chunks.len() - needed.count();
        for chunk in self.chunks.iter().skip(first) {
            chunk.decode(&mut |sample| {
                if sample.at >= oldest {
                    out.push(sample.clone());
                }
            });
        }
        out.drain(..out.len().saturating_sub(count));
        out
    }
}

impl Chunk {
    fn decode(&self, each: &mut dyn FnMut(&Sample)) {
        let mut row = Vec::new();
        let mut rest = self.bytes.as_slice();
        let mut sample = Sample::default();
        for _ in 0..self.samples {
            sample.clear();
            let mut decoder = Decoder {
                row: &mut row,
                at: 0,
                rest: &mut rest,
                zeros: 0,
            };
            sample.walk(&mut decoder);
            each(&sample);
        }
    }
}

struct Encoder<'a> {
    row: &'a mut Vec<u64>,
    at: usize,
    out: &'a mut Vec<u8>,
    /// Unchanged values not written yet.
    zeros: u64,
}

impl Walk for Encoder<'_> {
    /// Nearly every value is as it was: that much is worth inlining everywhere.
    #[inline(always)]
    fn value(&mut self, value: &mut u64) {
        if self.row.get(self.at) == Some(value) {
            self.at += 1;
            self.zeros += 1;
        } else {
            self.changed(*value);
        }
    }
}

impl Encoder<'_> {
    #[inline(never)]
    fn changed(&mut self, value: u64) {
        let delta = match self.row.get_mut(self.at) {
            Some(last) => value.wrapping_sub(std::mem::replace(last, value)),
            None => {
                self.row.push(value);
                value
            }
        };
        self.at += 1;
        if delta == 0 {
            self.zeros += 1;
            return;
        }
        self.flush_zeros();
        varint(zigzag(delta as i64), self.out);
    }

    /// A zero byte cannot start a non-zero delta, so it announces a run of unchanged values.
    fn flush_zeros(&mut self) {
        if self.zeros > 0 {
            self.out.push(0);
            varint(self.zeros, self.out);
            self.zeros = 0;
        }
    }

    fn finish(mut self) {
        self.flush_zeros();
        // A shorter row must not leave stale numbers behind for the next one to differ from.
        self.row.truncate(self.at);
    }
}

struct Decoder<'a, 'b> {
    row: &'a mut Vec<u64>,
    at: usize,
    rest: &'a mut &'b [u8],
    zeros: u64,
}

impl Walk for Decoder<'_, '_> {
    fn value(&mut self, value: &mut u64) {
        let delta = self.next_delta();
        let last = match self.row.get_mut(self.at) {
            Some(last) => last,
            None => {
                self.row.push(0);
                &mut self.row[self.at]
            }
        };
        *last = last.wrapping_add(delta);
        *value = *last;
        self.at += 1;
    }
}

impl Decoder<'_, '_> {
    fn next_delta(&mut self) -> u64 {
        if self.zeros > 0 {
            self.zeros -= 1;
            return 0;
        }
        match read_varint(self.rest) {
            0 => {
                self.zeros = read_varint(self.rest).saturating_sub(1);
                0
            }
            coded => unzigzag(coded) as u64,
        }
    }
}

impl Drop for Decoder<'_, '_> {
    fn drop(&mut self) {
        self.row.truncate(self.at);
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline]
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let Some((&byte, tail)) = rest.split_first() else {
            return value;
        };
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, GroupSet, Symbol};
    use plimsoll_host::cgroup::{IoOp, IoRow};
    use proptest::prelude::*;

    fn sample(at: i64, seed: u64) -> Sample {
        let mut s = Sample {
            at: Timestamp::from_secs(at),
            groups: GroupSet::all(),
            has_network: seed.is_multiple_of(2),
            ..Sample::default()
        };
        s.cpu.total_ns = seed.wrapping_mul(7);
        s.cpu.per_cpu_ns = vec![seed, u64::MAX - seed];
        s.memory.usage = seed % 100;
        let mut row = IoRow::new(8, seed % 3);
        row.set(IoOp::Write, seed);
        s.io.serviced = vec![row; (seed % 3) as usize];
        if s.has_network {
            s.network.interfaces = vec![crate::sample::Interface {
                name: Symbol::new("eth0"),
                rx_bytes: seed,
                ..Default::default()
            }];
            s.network.advanced_tcp = vec![seed; 99];
        }
        s.processes.max_open_files = seed.is_multiple_of(5).then_some((seed, u64::MAX));
        s
    }

    proptest! {
        // Each case packs dozens of samples of hundreds of numbers.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_goes_in_comes_out(seeds in prop::collection::vec(any::<u64>(), 1..70)) {
            let mut history = TimedStore::new(Duration::from_secs(1000));
            let mut expected: Vec<Sample> = seeds.iter().enumerate().map(|(i, s)| sample(i as i64, *s)).collect();
            for s in &mut expected {
                history.push(s);
            }
            for count in [0, 1, 2, 33] {
                let newest = &expected[expected.len().saturating_sub(count)..];
                prop_assert_eq!(history.newest(count), newest);
            }
            prop_assert_eq!(history.samples(), expected);
        }

        #[test]
        fn garbage_does_not_panic(bytes: Vec<u8>, samples in 0usize..40) {
            Chunk { bytes, samples, last: Timestamp::ZERO }.decode(&mut |_| {});
        }
    }

    #[test]
    fn old_samples_go_and_quiet_ones_are_small() {
        let mut history = TimedStore::new(Duration::from_secs(120));
        for second in 0..1000 {
            let mut quiet = sample(second, 4);
            quiet.groups = GroupSet::of(&[Group::Cpu, Group::Memory]);
            history.push(&mut quiet);
        }
        let kept = history.samples();
        assert_eq!(kept.len(), 121);
        assert_eq!(kept.first().map(|s| s.at), Some(Timestamp::from_secs(879)));
        assert!(history.bytes() < 121 * 40, "{} bytes", history.bytes());
    }
}
