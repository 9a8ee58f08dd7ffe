//! `/proc/cpuinfo`: a different table on every architecture, of which few lines matter.

use std::collections::BTreeSet;

use crate::parse;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpuinfo {
    /// x86 only: `GenuineIntel`.
    pub vendor_id: String,
    pub model: String,
    pub processors: usize,
    /// Distinct cores over all sockets; zero where cores are not told.
    pub cores: usize,
    pub sockets: usize,
    pub frequency_khz: Option<u64>,
}

/// Understands what it can: the table has no fixed form, so nothing in it is malformed.
pub fn parse_cpuinfo(text: &[u8]) -> Cpuinfo {
    let mut info = Cpuinfo::default();
    let mut cores = BTreeSet::new();
    let mut sockets = BTreeSet::new();
    let mut socket = 0;
    for line in parse::lines(text) {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let value = parse::trim(&line[colon + 1..]);
        match parse::trim(&line[..colon]) {
            b"processor" => {
                info.processors += 1;
                socket = 0;
            }
            b"vendor_id" if info.vendor_id.is_empty() => {
                let word = parse::words(value).next().unwrap_or(b"");
                info.vendor_id = String::from_utf8_lossy(word).into_owned();
            }
            b"model name" if info.model.is_empty() => {
                info.model = String::from_utf8_lossy(value).into_owned();
            }
            // Comes before `core id`, and numbers cores anew on every socket.
            b"physical id" => {
                socket = parse::u64(value).unwrap_or(0);
                sockets.insert(socket);
            }
            b"core id" => {
                if let Some(core) = parse::u64(value) {
                    cores.insert((socket, core));
                }
            }
            // POWER says `clock : 3425.000000MHz`.
            b"cpu MHz" | b"CPU MHz" | b"clock" if info.frequency_khz.is_none() => {
                info.frequency_khz = parse_mhz(value);
            }
            _ => {}
        }
    }
    info.cores = cores.len();
    info.sockets = sockets.len();
    info
}

/// `2299.998` as kHz, exactly.
fn parse_mhz(value: &[u8]) -> Option<u64> {
    let value = value.strip_suffix(b"MHz").unwrap_or(value);
    let dot = memchr::memchr(b'.', value)?;
    let (whole, fraction) = (&value[..dot], &value[dot + 1..]);
    let mut khz = parse::u64(whole)?.checked_mul(1000)?;
    for (digit, unit) in fraction.iter().zip([100, 10, 1]) {
        khz = khz.checked_add(u64::from(char::from(*digit).to_digit(10)?) * unit)?;
    }
    Some(khz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_sockets_number_their_cores_alike() {
        let mut text = String::new();
        for (processor, socket, core) in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 0, 0)] {
            text += &format!(
                "processor\t: {processor}\nvendor_id\t: GenuineIntel\ncpu MHz\t\t: 2299.998\n\
                 physical id\t: {socket}\ncore id\t\t: {core}\n\n"
            );
        }
        let info = parse_cpuinfo(text.as_bytes());
        assert_eq!((info.processors, info.cores, info.sockets), (5, 4, 2));
        assert_eq!(info.vendor_id, "GenuineIntel");
        assert_eq!(info.frequency_khz, Some(2_299_998));
    }

    #[test]
    fn arm_tells_little() {
        let info = parse_cpuinfo(
            b"processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\n\
              processor\t: 1\nBogoMIPS\t: 243.75\n",
        );
        assert_eq!(
            info,
            Cpuinfo {
                processors: 2,
                ..Cpuinfo::default()
            }
        );
    }

    #[test]
    fn frequencies() {
        assert_eq!(parse_mhz(b"3425.000000MHz"), Some(3_425_000));
        assert_eq!(parse_mhz(b"2445.428"), Some(2_445_428));
        assert_eq!(parse_mhz(b"2000.5"), Some(2_000_500));
        assert_eq!(parse_mhz(b"fast"), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_cpuinfo(&text);
            let _ = parse_mhz(&text);
        }
    }
}
