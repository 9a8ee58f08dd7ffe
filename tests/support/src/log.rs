//! The end of a log, for the message of a failure.

use std::fs;
use std::path::Path;

const WIDTH: usize = 300;

/// The last lines of a file, long ones cut. A file that cannot be read has none.
pub fn tail(path: &Path, count: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.chars().take(WIDTH).collect())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_cut_to_width() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, format!("one\ntwo\n{}\n", "x".repeat(1000))).unwrap();
        assert_eq!(tail(&path, 2), format!("two\n{}", "x".repeat(WIDTH)));
        assert_eq!(tail(&folder.path().join("absent"), 2), "");
    }
}
