//! How many tasks (threads) the machine has, and how many it may have.

use crate::{HostRoot, ReadBuf, read_file};

/// A figure whose file is missing or makes no sense is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tasks {
    pub current: Option<u64>,
    /// The lower of `kernel.pid_max` and `kernel.threads-max`.
    pub limit: Option<u64>,
}

impl Tasks {
    pub fn read(root: &HostRoot, buf: &mut ReadBuf) -> Self {
        let mut text = |file: &str| {
            let bytes = read_file(&root.proc(file), buf).ok().flatten()?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let number = |text: Option<String>| text.and_then(|t| t.trim().parse::<u64>().ok());
        let limits = [
            number(text("sys/kernel/pid_max")),
            number(text("sys/kernel/threads-max")),
        ];
        Self {
            current: text("loadavg").and_then(|load| parse_loadavg_tasks(&load)),
            limit: limits.into_iter().flatten().min(),
        }
    }
}

/// `0.20 0.18 0.12 1/80 11206`: 1 of 80 tasks runs.
fn parse_loadavg_tasks(loadavg: &str) -> Option<u64> {
    let (_, all) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    all.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_a_load_line() {
        for (line, tasks) in [
            ("0.20 0.18 0.12 1/80 11206\n", Some(80)),
            ("0.20 0.18 0.12 1-80 11206\n", None),
            ("", None),
        ] {
            assert_eq!(parse_loadavg_tasks(line), tasks, "{line:?}");
        }
    }

    #[test]
    fn of_a_fixture_tree() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let mut buf = ReadBuf::default();
        assert_eq!(Tasks::read(&root, &mut buf), Tasks::default());
        let kernel = dir.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&kernel).unwrap();
        std::fs::write(kernel.join("pid_max"), "32768\n").unwrap();
        std::fs::write(kernel.join("threads-max"), "9000\n").unwrap();
        std::fs::write(dir.path().join("proc/loadavg"), "0 0 0 1/80 1\n").unwrap();
        let expected = Tasks {
            current: Some(80),
            limit: Some(9000),
        };
        assert_eq!(Tasks::read(&root, &mut buf), expected);
    }
}
