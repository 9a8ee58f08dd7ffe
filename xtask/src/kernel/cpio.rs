//! The archive that a kernel unpacks as its first root file system: cpio, "newc" format.

use std::io::{self, Write};

/// Writes entries one by one; `finish` must be called.
#[derive(Debug)]
pub struct Archive<W> {
    out: W,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self { out, inode: 1 }
    }

    /// Parents come before what they hold.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, DIRECTORY, (0, 0), &[])
    }

    pub fn file(&mut self, path: &str, contents: &[u8]) -> io::Result<()> {
        self.entry(path, EXECUTABLE, (0, 0), contents)
    }

    /// A character device: the kernel opens `/dev/console` for its first process before anything is mounted.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE, (major, minor), &[])
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        contents: &[u8],
    ) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        let too_long = |_| io::Error::other(format!("{path} is too long for cpio"));
        let size = u32::try_from(contents.len()).map_err(too_long)?;
        // The name's size counts its terminating zero.
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        let (major, minor) = device;
        let fields = [
            self.inode, mode, 0, 0, // inode, mode, user, group
            1, 0, size, 0, 0, // links, time, size, device of the file system
            major, minor, name_size, 0, // device it stands for, name's size, checksum (none)
        ];
        self.inode += 1;
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(header.len() + name.len() + 1)?;
        self.out.write_all(contents)?;
        self.pad(contents.len())
    }

    /// Header with name, and contents, each end on a multiple of four.
    fn pad(&mut self, written: usize) -> io::Result<()> {
        let zeros = written.next_multiple_of(4) - written;
        self.out.write_all(&[0; 3][..zeros])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader by the format's description, independent of the writer's arithmetic.
    fn read(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&archive[at..at + 6], b"070701");
            let field = |index: usize| {
                let start = at + 6 + index * 8;
                let digits = std::str::from_utf8(&archive[start..start + 8]).unwrap();
                u32::from_str_radix(digits, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name_at = at + 110;
            let name =
                String::from_utf8(archive[name_at..name_at + name_size - 1].to_vec()).unwrap();
            assert_eq!(archive[name_at + name_size - 1], 0);
            let data_at = (name_at + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return entries;
            }
            entries.push((name, mode, archive[data_at..data_at + size].to_vec()));
            at = (data_at + size).next_multiple_of(4);
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("/dev").unwrap();
        archive.character_device("/dev/console", 5, 1).unwrap();
        archive.file("init", b"12345").unwrap();
        archive.file("empty", b"").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(
            read(&bytes),
            [
                ("dev".to_owned(), 0o040_755, vec![]),
                ("dev/console".to_owned(), 0o020_600, vec![]),
                ("init".to_owned(), 0o100_755, b"12345".to_vec()),
                ("empty".to_owned(), 0o100_755, vec![]),
            ]
        );
    }
}
