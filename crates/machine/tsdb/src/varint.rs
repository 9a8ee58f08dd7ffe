//! Numbers in as few bytes as they need, for files.

pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, zigzag(number));
}

pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Small numbers of either sign become small ones.
pub fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Reads what was put; `None` at the end, or where there is nonsense.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub fn signed(&mut self) -> Option<i64> {
        self.number().map(unzigzag)
    }

    pub fn float(&mut self) -> Option<f64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*bytes))
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        let bytes = self.0.get(..length)?;
        self.0 = &self.0[length..];
        std::str::from_utf8(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec(any::<i64>(), 0..50), text in ".*") {
            let mut out = Vec::new();
            for &number in &numbers {
                put_signed(&mut out, number);
                put(&mut out, number as u64);
            }
            put_text(&mut out, &text);
            let mut reader = Reader(&out);
            for number in numbers {
                prop_assert_eq!(reader.signed(), Some(number));
                prop_assert_eq!(reader.number(), Some(number as u64));
            }
            prop_assert_eq!(reader.text(), Some(text.as_str()));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader(&bytes);
            while reader.text().is_some() || reader.number().is_some() {}
            let _ = reader.float();
        }
    }
}
