//! Bits in words, written and read from the most significant end.

#[derive(Debug, Clone, Default)]
pub struct Bits {
    words: Vec<u64>,
    len: u32,
}

impl Bits {
    /// The `count` (1 to 64) lowest bits of `value`; those above must be 0.
    pub fn push(&mut self, value: u64, count: u32) {
        let used = self.len % 64;
        self.len += count;
        match self.words.last_mut() {
            Some(last) if used > 0 => {
                let free = 64 - used;
                if count <= free {
                    *last |= value << (free - count);
                } else {
                    *last |= value >> (count - free);
                    self.words.push(value << (64 - (count - free)));
                }
            }
            _ => self.words.push(value << (64 - count)),
        }
    }

    pub fn into_words(self) -> Box<[u64]> {
        self.words.into_boxed_slice()
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// Reads zeros beyond the end: whoever wrote the words knows how many bits there are.
#[derive(Debug)]
pub struct BitReader<'a> {
    words: &'a [u64],
    at: usize,
}

impl<'a> BitReader<'a> {
    pub fn new(words: &'a [u64]) -> Self {
        Self { words, at: 0 }
    }

    /// The next 64 bits, without passing them.
    #[inline]
    pub fn peek(&self) -> u64 {
        let (word, used) = (self.at / 64, self.at % 64);
        let first = self.words.get(word).copied().unwrap_or(0);
        if used == 0 {
            return first;
        }
        let second = self.words.get(word + 1).copied().unwrap_or(0);
        first << used | second >> (64 - used)
    }

    #[inline]
    pub fn skip(&mut self, count: u32) {
        self.at += count as usize;
    }

    /// `count` is 1 to 64.
    #[inline]
    pub fn take(&mut self, count: u32) -> u64 {
        let bits = self.peek() >> (64 - count);
        self.skip(count);
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_pushed_is_taken(pieces in prop::collection::vec((any::<u64>(), 1u32..=64), 0..200)) {
            let pieces: Vec<(u64, u32)> = pieces.into_iter().map(|(value, count)| (value >> (64 - count), count)).collect();
            let mut bits = Bits::default();
            for &(value, count) in &pieces {
                bits.push(value, count);
            }
            let words = bits.into_words();
            let mut reader = BitReader::new(&words);
            for (value, count) in pieces {
                prop_assert_eq!(reader.take(count), value);
            }
        }
    }
}
