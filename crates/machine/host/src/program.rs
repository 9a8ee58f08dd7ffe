//! Releases resident pages of our own executable after start-up.
#![allow(unsafe_code)]

use std::path::Path;

use rustix::mm::{Advice, madvise};

use crate::error::{HostError, Result};

/// Has the kernel forget which pages of the program's own file it has mapped for us, and gives how many bytes those
/// were. What is needed again is mapped again, out of the page cache: a program of many roles uses a small part of
/// itself once it has started, and what starting took would count as ours for good.
pub fn give_back_mapped() -> Result<u64> {
    let (exe, smaps) = (Path::new("/proc/self/exe"), Path::new("/proc/self/smaps"));
    let file = std::fs::read_link(exe).map_err(|error| HostError::io("read", exe, error))?;
    let told =
        std::fs::read_to_string(smaps).map_err(|error| HostError::io("read", smaps, error))?;
    let mut given = 0;
    for mapping in clean_mappings(&told, &file) {
        let address = std::ptr::with_exposed_provenance_mut(mapping.from);
        // SAFETY: the mapping cannot be written to and has no page of its own (see `clean_mappings`), so that whatever
        // is read there afterwards is read from the file again, and is the same.
        let advised = unsafe { madvise(address, mapping.to - mapping.from, Advice::LinuxDontNeed) };
        advised.map_err(|error| HostError::io("unmap pages of", &file, error))?;
        given += mapping.resident;
    }
    Ok(given)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapping {
    from: usize,
    to: usize,
    /// Bytes.
    resident: u64,
}

/// Mappings of the file that are just that: nobody can write to them, and nobody has, not even the loader, which
/// changes pages of the file before it protects them.
fn clean_mappings(smaps: &str, file: &Path) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut current: Option<Mapping> = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        let Some(figure) = first.strip_suffix(':') else {
            current = header(line)
                .filter(|(_, path)| *path == file)
                .map(|(mapping, _)| mapping);
            continue;
        };
        let Some(mapping) = &mut current else {
            continue;
        };
        let kib = words.next().and_then(|word| word.parse::<u64>().ok());
        match (figure, kib) {
            ("Rss", Some(kib)) => mapping.resident = kib * 1024,
            ("Anonymous", Some(0)) => found.extend(current.take()),
            ("Anonymous", _) => current = None,
            _ => {}
        }
    }
    found
}

/// The line that a mapping begins with, if it is a private one of a file, and not to be written to.
fn header(line: &str) -> Option<(Mapping, &Path)> {
    // The path is what is left after five fields, blanks and all.
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ')?;
        rest = after.trim_start_matches(' ');
        Some(field)
    };
    let (from, to) = field()?.split_once('-')?;
    let rights = field()?;
    let (_offset, _device, _inode) = (field()?, field()?, field()?);
    let address = |text| usize::from_str_radix(text, 16).ok();
    let mapping = Mapping {
        from: address(from)?,
        to: address(to)?,
        resident: 0,
    };
    (matches!(rights, "r-xp" | "r--p")).then_some((mapping, Path::new(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_in_the_file() {
        let smaps = "\
1000-3000 r--p 00000000 fe:00 7                   /opt/a b/plimsoll
Size:                  8 kB
Rss:                   4 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
3000-9000 r-xp 00002000 fe:00 7                   /opt/a b/plimsoll
Rss:                  20 kB
Anonymous:             0 kB
9000-a000 r--p 00008000 fe:00 7                   /opt/a b/plimsoll
Rss:                   4 kB
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 7                   /opt/a b/plimsoll
Rss:                   0 kB
Anonymous:             0 kB
b000-c000 r-xp 00000000 fe:00 8                   /lib/libc.so.6
Rss:                   4 kB
Anonymous:             0 kB
c000-d000 rw-p 00000000 00:00 0 
Rss:                   4 kB
Anonymous:             0 kB
";
        let mapping = |from, to, resident| Mapping { from, to, resident };
        assert_eq!(
            clean_mappings(smaps, Path::new("/opt/a b/plimsoll")),
            [
                mapping(0x1000, 0x3000, 4096),
                mapping(0x3000, 0x9000, 20480)
            ]
        );
        assert!(clean_mappings("", Path::new("/x")).is_empty());
        assert!(clean_mappings("nonsense\nRss:\n", Path::new("nonsense")).is_empty());
    }
}
