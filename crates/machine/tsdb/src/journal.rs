//! What is not sealed yet, on disk, so that a killed process loses seconds and not minutes.
//!
//! One file a window, of frames `length u32 · CRC-32 u32 · payload`; a payload is entries: a series' definition before
//! its first sample in the file, and rounds of samples taken at one time. Reading stops at the first frame that is not
//! whole, which is where writing was cut off.

use crate::varint::{self, Reader};

const DEFINITION: u8 = 1;
const ROUND: u8 = 2;
/// Nothing of what is above in the file is referred to from here on.
const ANEW: u8 = 3;
/// Whole numbers below this are written as differences.
const EXACT: f64 = 4_503_599_627_370_496.0;

/// What a series' last whole number in this file was; `file` tells which file that is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    file: u64,
    last: i64,
}

/// Entries that are not in their file yet.
#[derive(Debug, Default)]
pub struct Pending {
    file: u64,
    payload: Vec<u8>,
    begun: bool,
    last_at: i64,
    last_slot: u32,
}

impl Pending {
    /// Entries from here on are for another file, which knows nothing yet.
    pub fn turn(&mut self) -> Vec<u8> {
        let payload = std::mem::take(&mut self.payload);
        *self = Self {
            file: self.file + 1,
            ..Self::default()
        };
        payload
    }

    /// What has gathered for the file.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.payload)
    }

    pub fn begin(&mut self, at: i64) {
        if !self.begun {
            self.begun = true;
            self.payload.push(ANEW);
        }
        self.payload.push(ROUND);
        varint::put_signed(&mut self.payload, at.wrapping_sub(self.last_at));
        self.last_at = at;
    }

    /// Within a round: a sample of a series that may have to be defined first.
    pub fn sample(
        &mut self,
        slot: u32,
        value: f64,
        written: &mut Written,
        define: impl FnOnce() -> (f64, String),
    ) {
        let step = i64::from(slot) - i64::from(self.last_slot);
        self.last_slot = slot;
        // 0 ends the round, 1 defines; steps follow.
        if written.file != self.file + 1 {
            *written = Written {
                file: self.file + 1,
                last: 0,
            };
            let (steps, key) = define();
            self.payload.push(DEFINITION);
            varint::put(&mut self.payload, u64::from(slot));
            self.payload.extend_from_slice(&steps.to_le_bytes());
            varint::put_text(&mut self.payload, &key);
        }
        varint::put(&mut self.payload, varint::zigzag(step).saturating_add(2));
        let whole = value.fract() == 0.0
            && value.abs() < EXACT
            && (value != 0.0 || value.is_sign_positive());
        if whole {
            let number = value as i64;
            varint::put(
                &mut self.payload,
                varint::zigzag(number - written.last) << 1,
            );
            written.last = number;
        } else {
            self.payload.push(1);
            self.payload.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub fn end(&mut self) {
        self.payload.push(0);
    }
}

pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 8);
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// What a file tells, in its order.
pub trait Listener {
    /// The file's number for a series.
    fn series(&mut self, number: u32, steps: f64, key: &str);
    fn sample(&mut self, number: u32, at: i64, value: f64);
}

/// Reads a file as far as it is whole; says how many bytes that is.
pub fn replay(file: &[u8], listener: &mut impl Listener) -> usize {
    let mut state = Replay::default();
    let (mut rest, mut whole) = (file, 0);
    while let Some(payload) = next_frame(&mut rest) {
        if state.entries(payload, listener).is_none() {
            break;
        }
        whole = file.len() - rest.len();
    }
    whole
}

fn next_frame<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (crc, after) = after.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let payload = after.get(..length)?;
    if crc32fast::hash(payload) != u32::from_le_bytes(*crc) {
        return None;
    }
    *rest = &after[length..];
    Some(payload)
}

#[derive(Default)]
struct Replay {
    last_at: i64,
    last_slot: u32,
    last: rustc_hash::FxHashMap<u32, i64>,
}

impl Replay {
    fn entries(&mut self, payload: &[u8], listener: &mut impl Listener) -> Option<()> {
        let mut reader = Reader(payload);
        while !reader.is_empty() {
            match reader.byte()? {
                ROUND => {}
                ANEW => {
                    *self = Self::default();
                    continue;
                }
                _ => return None,
            }
            self.last_at = self.last_at.wrapping_add(reader.signed()?);
            self.round(&mut reader, listener)?;
        }
        Some(())
    }

    fn round(&mut self, reader: &mut Reader<'_>, listener: &mut impl Listener) -> Option<()> {
        loop {
            match reader.number()? {
                0 => return Some(()),
                1 => {
                    let number = u32::try_from(reader.number()?).ok()?;
                    let steps = reader.float()?;
                    listener.series(number, steps, reader.text()?);
                    self.last.insert(number, 0);
                }
                step => {
                    let step = varint::unzigzag(step - 2);
                    let slot = u32::try_from(i64::from(self.last_slot).checked_add(step)?).ok()?;
                    self.last_slot = slot;
                    let last = self.last.get_mut(&slot)?;
                    let number = reader.number()?;
                    let value = if number & 1 == 1 {
                        reader.float()?
                    } else {
                        *last = last.checked_add(varint::unzigzag(number >> 1))?;
                        *last as f64
                    };
                    listener.sample(slot, self.last_at, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default, Debug, PartialEq)]
    struct Heard {
        series: Vec<(u32, String)>,
        samples: Vec<(u32, i64, u64)>,
    }

    impl Listener for Heard {
        fn series(&mut self, number: u32, _steps: f64, key: &str) {
            self.series.push((number, key.to_owned()));
        }

        fn sample(&mut self, number: u32, at: i64, value: f64) {
            self.samples.push((number, at, value.to_bits()));
        }
    }

    type Round = (i64, Vec<(u32, f64)>);

    /// The file's bytes, a frame a round.
    fn written(rounds: &[Round]) -> Vec<u8> {
        let mut pending = Pending::default();
        let mut known = [Written::default(); 10];
        let mut file = Vec::new();
        for (at, samples) in rounds {
            pending.begin(*at);
            for &(slot, value) in samples {
                pending.sample(slot, value, &mut known[slot as usize], || {
                    (1.0, format!("s{slot}"))
                });
            }
            pending.end();
            file.extend(frame(&pending.take()));
        }
        file
    }

    fn heard(file: &[u8]) -> Heard {
        let mut heard = Heard::default();
        replay(file, &mut heard);
        heard
    }

    fn expected(rounds: &[Round]) -> Vec<(u32, i64, u64)> {
        rounds
            .iter()
            .flat_map(|(at, samples)| samples.iter().map(|s| (s.0, *at, s.1.to_bits())))
            .collect()
    }

    fn rounds() -> impl Strategy<Value = Vec<Round>> {
        let value = prop_oneof![any::<f64>(), (-5000i64..5000).prop_map(|n| n as f64)];
        let round = (
            any::<i64>(),
            prop::collection::vec((0u32..10, value), 0..12),
        );
        prop::collection::vec(round, 0..12)
    }

    proptest! {
        #[test]
        fn what_is_written_is_heard(rounds in rounds()) {
            prop_assert_eq!(heard(&written(&rounds)).samples, expected(&rounds));
        }

        #[test]
        fn a_cut_file_is_heard_up_to_the_cut(rounds in rounds(), cut in 0.0f64..1.0) {
            let file = written(&rounds);
            let cut = (file.len() as f64 * cut) as usize;
            let heard = heard(&file[..cut]).samples;
            prop_assert_eq!(&heard[..], &expected(&rounds)[..heard.len()]);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            heard(&frame(&bytes));
            heard(&bytes);
        }
    }

    #[test]
    fn a_series_is_defined_once_a_file() {
        let mut pending = Pending::default();
        let mut known = Written::default();
        let mut round = |pending: &mut Pending, at| {
            pending.begin(at);
            pending.sample(3, 5.0, &mut known, || (1.0, "s".into()));
            pending.end();
        };
        round(&mut pending, 1);
        round(&mut pending, 2);
        let first = pending.turn();
        round(&mut pending, 3);
        let second = pending.take();
        for (payload, times) in [(first, vec![1, 2]), (second, vec![3])] {
            let heard = heard(&frame(&payload));
            assert_eq!(heard.series, [(3, "s".to_owned())]);
            let found: Vec<i64> = heard.samples.iter().map(|s| s.1).collect();
            assert_eq!(found, times);
        }
    }
}
