//! Samples of one series in few bits: timestamps as differences of differences, values XORed with the one before.

use crate::bits::{BitReader, Bits};

/// A chunk is closed when it has this many samples, so that reading the last few minutes decodes little else.
pub const SAMPLES: u16 = 120;

/// What the last `leading`/`length` of a value's changed bits were, which the next value may share.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    leading: u32,
    length: u32,
}

/// A chunk that still grows.
#[derive(Debug, Clone)]
pub struct Open {
    first: (i64, u64),
    last: (i64, u64),
    step: i64,
    span: Span,
    count: u16,
    bits: Bits,
}

/// A chunk that does not change any more.
#[derive(Debug)]
pub struct Chunk {
    first: (i64, u64),
    last_at: i64,
    count: u16,
    words: Box<[u64]>,
}

impl Open {
    pub fn new(at: i64, value: f64) -> Self {
        let first = (at, value.to_bits());
        Self {
            first,
            last: first,
            step: 0,
            span: Span::default(),
            count: 1,
            bits: Bits::default(),
        }
    }

    pub fn last_at(&self) -> i64 {
        self.last.0
    }

    pub fn first_at(&self) -> i64 {
        self.first.0
    }

    pub fn count(&self) -> u16 {
        self.count
    }

    pub fn bytes(&self) -> usize {
        self.bits.words().len() * 8
    }

    pub fn is_full(&self) -> bool {
        self.count >= SAMPLES
    }

    /// `at` is later than the last sample's.
    pub fn push(&mut self, at: i64, value: f64) {
        let step = at.wrapping_sub(self.last.0);
        self.push_change(step.wrapping_sub(self.step));
        let value = value.to_bits();
        self.push_xor(self.last.1 ^ value);
        self.last = (at, value);
        self.step = step;
        self.count += 1;
    }

    fn push_change(&mut self, change: i64) {
        let bits = &mut self.bits;
        match change {
            0 => bits.push(0, 1),
            -64..=63 => bits.push(0b10 << 7 | (change + 64) as u64, 9),
            -2048..=2047 => bits.push(0b110 << 12 | (change + 2048) as u64, 15),
            -524_288..=524_287 => bits.push(0b1110 << 20 | (change + 524_288) as u64, 24),
            _ => {
                bits.push(0b1111, 4);
                bits.push(change as u64, 64);
            }
        }
    }

    fn push_xor(&mut self, xor: u64) {
        let bits = &mut self.bits;
        if xor == 0 {
            bits.push(0, 1);
            return;
        }
        let (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
        let Span {
            leading: before,
            length,
        } = self.span;
        let fits = length > 0 && leading >= before && trailing >= 64 - before - length;
        // A span that has become much too wide is not kept for ever.
        if fits && length <= 64 - leading - trailing + 11 {
            bits.push(0b10, 2);
            bits.push(xor >> (64 - before - length), length);
            return;
        }
        let length = 64 - leading - trailing;
        bits.push(0b11, 2);
        bits.push(u64::from(leading), 5);
        // 1 to 64, of which 64 is written as 0.
        bits.push(u64::from(length & 63), 6);
        bits.push(xor >> trailing, length);
        self.span = Span { leading, length };
    }

    pub fn close(self) -> Chunk {
        Chunk {
            first: self.first,
            last_at: self.last.0,
            count: self.count,
            words: self.bits.into_words(),
        }
    }

    /// Calls `visit` with every sample, oldest first.
    pub fn decode(&self, visit: impl FnMut(i64, f64)) {
        decode(self.first, self.count, self.bits.words(), visit);
    }
}

impl Chunk {
    pub fn first_at(&self) -> i64 {
        self.first.0
    }

    pub fn last_at(&self) -> i64 {
        self.last_at
    }

    pub fn count(&self) -> u16 {
        self.count
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.words.len() * 8
    }

    pub fn decode(&self, visit: impl FnMut(i64, f64)) {
        decode(self.first, self.count, &self.words, visit);
    }
}

fn decode(first: (i64, u64), count: u16, words: &[u64], mut visit: impl FnMut(i64, f64)) {
    let mut reader = BitReader::new(words);
    let (mut at, mut value) = first;
    let mut step = 0i64;
    let mut span = Span::default();
    visit(at, f64::from_bits(value));
    for _ in 1..count {
        step = step.wrapping_add(change(&mut reader));
        at = at.wrapping_add(step);
        value ^= xor(&mut reader, &mut span);
        visit(at, f64::from_bits(value));
    }
}

#[inline]
fn change(reader: &mut BitReader<'_>) -> i64 {
    let ahead = reader.peek();
    // How many ones lead says how wide the number is.
    let (prefix, width, offset) = match ahead.leading_ones() {
        0 => {
            reader.skip(1);
            return 0;
        }
        1 => (2, 7, 64),
        2 => (3, 12, 2048),
        3 => (4, 20, 524_288),
        _ => {
            reader.skip(4);
            return reader.take(64) as i64;
        }
    };
    reader.skip(prefix + width);
    ((ahead << prefix) >> (64 - width)) as i64 - offset
}

#[inline]
fn xor(reader: &mut BitReader<'_>, span: &mut Span) -> u64 {
    let ahead = reader.peek();
    if ahead >> 63 == 0 {
        reader.skip(1);
        return 0;
    }
    if ahead >> 62 == 0b10 {
        reader.skip(2);
    } else {
        let length = ((ahead >> 51) & 63) as u32;
        *span = Span {
            leading: ((ahead >> 57) & 31) as u32,
            length: if length == 0 { 64 } else { length },
        };
        reader.skip(13);
    }
    reader.take(span.length) << (64 - span.leading - span.length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(samples: &[(i64, f64)]) {
        let mut open = Open::new(samples[0].0, samples[0].1);
        for &(at, value) in &samples[1..] {
            open.push(at, value);
        }
        let expected: Vec<(i64, u64)> = samples.iter().map(|s| (s.0, s.1.to_bits())).collect();
        let mut found = Vec::new();
        open.decode(|at, value| found.push((at, value.to_bits())));
        assert_eq!(found, expected);
        let chunk = open.close();
        found.clear();
        chunk.decode(|at, value| found.push((at, value.to_bits())));
        assert_eq!(found, expected);
        assert_eq!(
            (chunk.first_at(), chunk.last_at()),
            (samples[0].0, samples[samples.len() - 1].0)
        );
    }

    #[test]
    fn a_steady_series_needs_two_bits_a_sample() {
        let samples: Vec<(i64, f64)> = (0..120).map(|n| (n * 1000, 42.0)).collect();
        check(&samples);
        let mut open = Open::new(0, 42.0);
        for &(at, value) in &samples[1..] {
            open.push(at, value);
        }
        assert!(open.close().words.len() * 8 <= 40);
    }

    #[test]
    fn values_of_every_kind() {
        let values = [
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::MIN_POSITIVE,
            1e300,
            -1.5,
            3.0,
            3.0,
        ];
        let samples: Vec<(i64, f64)> = values
            .iter()
            .enumerate()
            .map(|(n, v)| (n as i64 * 997, *v))
            .collect();
        check(&samples);
    }

    proptest! {
        #[test]
        fn any_samples_come_back(
            start in any::<i64>(),
            samples in prop::collection::vec((prop_oneof![1i64..3000, 1i64..i64::MAX / 400], any::<u64>()), 1..120),
        ) {
            let mut at = start / 2;
            let samples: Vec<(i64, f64)> = samples
                .into_iter()
                .map(|(step, bits)| { at = at.saturating_add(step); (at, f64::from_bits(bits)) })
                .collect();
            check(&samples);
        }

        #[test]
        fn noise_on_a_level_comes_back(values in prop::collection::vec(0u32..4000, 1..120)) {
            let samples: Vec<(i64, f64)> = values.iter().enumerate().map(|(n, v)| (n as i64 * 1000 + i64::from(v % 7), f64::from(*v))).collect();
            check(&samples);
        }
    }
}
