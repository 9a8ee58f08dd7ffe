//! Password files in Apache's format: the hashes that `htpasswd` writes by default (`$apr1$`) and with `-s` (`{SHA}`).

use ring::digest;

/// One entry's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hash {
    Sha1(Vec<u8>),
    /// Apache's and the old crypt's variant of a thousand rounds of MD5.
    Md5 {
        magic: &'static str,
        salt: String,
        text: String,
    },
}

impl Hash {
    /// `None`: a kind of hash that is not known here.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(sha) = text.strip_prefix("{SHA}") {
            let sha = decode_base64(sha.as_bytes())?;
            return (sha.len() == digest::SHA1_OUTPUT_LEN).then_some(Self::Sha1(sha));
        }
        for magic in ["$apr1$", "$1$"] {
            if let Some(rest) = text.strip_prefix(magic) {
                let (salt, hash) = rest.split_once('$')?;
                return Some(Self::Md5 {
                    magic,
                    // Only so much of a salt counts.
                    salt: salt.chars().take(8).collect(),
                    text: hash.to_owned(),
                });
            }
        }
        None
    }

    pub fn fits(&self, password: &str) -> bool {
        match self {
            Self::Sha1(expected) => {
                let given = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
                same(given.as_ref(), expected)
            }
            Self::Md5 { magic, salt, text } => {
                let given = md5_crypt(password.as_bytes(), salt.as_bytes(), magic.as_bytes());
                same(given.as_bytes(), text.as_bytes())
            }
        }
    }
}

/// Takes the same time wherever the first difference is.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() || b.is_empty() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0
}

fn md5_crypt(password: &[u8], salt: &[u8], magic: &[u8]) -> String {
    let inner = md5(&[password, salt, password].concat());
    let mut start = [password, magic, salt].concat();
    for at in (0..password.len()).step_by(16) {
        start.extend_from_slice(&inner[..16.min(password.len() - at)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        start.push(match bits & 1 {
            1 => 0,
            _ => password[0],
        });
        bits >>= 1;
    }
    let mut last = md5(&start);
    for round in 0..1000 {
        let odd = round % 2 == 1;
        let mut text = Vec::with_capacity(64);
        text.extend_from_slice(if odd { password } else { &last });
        if round % 3 != 0 {
            text.extend_from_slice(salt);
        }
        if round % 7 != 0 {
            text.extend_from_slice(password);
        }
        text.extend_from_slice(if odd { &last } else { password });
        last = md5(&text);
    }
    encode(&last)
}

/// The crypt alphabet, and the crypt order of bytes.
fn encode(hash: &[u8; 16]) -> String {
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut out = String::with_capacity(22);
    let mut push = |mut value: u32, digits: usize| {
        for _ in 0..digits {
            out.push(char::from(DIGITS[(value & 63) as usize]));
            value >>= 6;
        }
    };
    for [high, middle, low] in ORDER {
        let value =
            u32::from(hash[high]) << 16 | u32::from(hash[middle]) << 8 | u32::from(hash[low]);
        push(value, 4);
    }
    push(u32::from(hash[11]), 2);
    out
}

/// RFC 1321. Broken for signatures; here it only has to agree with what is in the file.
fn md5(message: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] = [
        [7, 12, 17, 22],
        [5, 9, 14, 20],
        [4, 11, 16, 23],
        [6, 10, 15, 21],
    ];
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes
                .iter()
                .rev()
                .fold(0, |all, byte| all << 8 | u32::from(*byte));
        }
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64 {
            let (mixed, index) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            // The table of the standard: the sine's fraction in 32 bits.
            let constant = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a
                .wrapping_add(mixed)
                .wrapping_add(constant)
                .wrapping_add(words[index % 16]);
            let turned = sum.rotate_left(SHIFTS[step / 16][step % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (total, part) in state.iter_mut().zip([a, b, c, d]) {
            *total = total.wrapping_add(part);
        }
    }
    let mut out = [0; 16];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    out
}

pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let padding = text.iter().rev().take_while(|&&b| b == b'=').count();
    let digits = &text[..text.len() - padding];
    if padding > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for &digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn digests_of_the_standard() {
        assert_eq!(hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(
            hex(&md5(b"message digest")),
            "f96b697d7cb7938d525a2f31aaf161d0"
        );
        let long =
            b"12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(hex(&md5(long)), "57edf4a22be3c955ac49da2e2107b67a");
    }

    #[test]
    fn as_other_programs_hash() {
        for (hash, password) in [
            ("$apr1$WVO0Bsre$VrmWGDbcBV1fdAkvgQwdk0", "password1"),
            (
                "$1$abcd$/MQVJMmoZJG9IO5zRKJ8k.",
                "pässwörd long enough to need more than one block of sixty-four bytes of input",
            ),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "password"),
        ] {
            let hash = Hash::parse(hash).unwrap();
            assert!(hash.fits(password), "{hash:?}");
            assert!(!hash.fits("password2") && !hash.fits(""));
        }
        for unknown in ["$2y$05$abc", "{SHA}short", "$apr1$salt", "plain"] {
            assert_eq!(Hash::parse(unknown), None, "{unknown}");
        }
    }

    proptest! {
        // A thousand rounds each.
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn nothing_panics(bytes: Vec<u8>, text: String) {
            let _ = decode_base64(&bytes);
            if let Some(hash) = Hash::parse(&text) {
                hash.fits(&text);
            }
            md5_crypt(&bytes, text.as_bytes(), b"$1$");
        }
    }
}
