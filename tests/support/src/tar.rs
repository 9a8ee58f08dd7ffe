//! Tar archives, "ustar" format: what images are made of.

use std::io::{self, Write};

/// Archives are padded to full blocks of this size.
const BLOCK: usize = 512;

#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(&format!("{path}/"), b'5', 0o755, "", &[])
    }

    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        self.entry(path, b'0', mode, "", contents)
    }

    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, b'2', 0o777, target, &[])
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 2 * BLOCK]);
        self.bytes
    }

    fn entry(
        &mut self,
        path: &str,
        kind: u8,
        mode: u32,
        target: &str,
        contents: &[u8],
    ) -> io::Result<()> {
        let mut header = [0; BLOCK];
        put(&mut header[..100], path)?;
        put(&mut header[100..108], &format!("{mode:07o}"))?;
        put(&mut header[108..116], "0000000")?; // user
        put(&mut header[116..124], "0000000")?; // group
        put(&mut header[124..136], &format!("{:011o}", contents.len()))?;
        // A fixed time makes the same image at each run.
        put(&mut header[136..148], "00000000000")?;
        header[156] = kind;
        put(&mut header[157..257], target)?;
        put(&mut header[257..265], "ustar\x0000")?;
        // The sum counts its own field as spaces.
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        put(&mut header[148..156], &format!("{sum:06o}\0 "))?;
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(contents);
        let padded = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(padded, 0);
        Ok(())
    }
}

fn put(mut field: &mut [u8], text: &str) -> io::Result<()> {
    if text.len() > field.len() {
        return Err(io::Error::other(format!(
            "{text:?} is too long for a tar header"
        )));
    }
    field.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields() {
        let mut archive = Archive::default();
        archive.directory("bin").unwrap();
        archive.file("bin/sh", 0o755, b"hello").unwrap();
        let bytes = archive.finish();
        assert_eq!(bytes.len(), BLOCK * 5);
        let second = &bytes[BLOCK..2 * BLOCK];
        assert_eq!(&second[..7], b"bin/sh\0");
        assert_eq!(&second[124..135], b"00000000005");
        assert_eq!(&second[257..262], b"ustar");
        let mut summed = second.to_vec();
        summed[148..156].fill(b' ');
        let sum: u32 = summed.iter().map(|&byte| u32::from(byte)).sum();
        assert_eq!(&second[148..156], format!("{sum:06o}\0 ").as_bytes());
        assert_eq!(&bytes[2 * BLOCK..2 * BLOCK + 5], b"hello");
    }

    #[test]
    fn long_names_are_refused() {
        assert!(Archive::default().directory(&"x".repeat(120)).is_err());
    }
}
