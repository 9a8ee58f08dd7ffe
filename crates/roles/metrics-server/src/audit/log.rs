//! The audit log: a file of lines that begins anew when it has become large.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

#[derive(Debug, Clone)]
pub struct LogConfig {
    /// `-`: standard output.
    pub path: PathBuf,
    /// Bytes after which the file is put aside; zero: never.
    pub longest: u64,
    /// How many that were put aside are kept; zero: any number.
    pub backups: usize,
    /// How long they are kept; zero: for ever.
    pub kept_for: Duration,
    pub compress: bool,
}

#[derive(Debug)]
pub struct Log {
    config: LogConfig,
    file: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
}

impl Log {
    /// Opens the file, or makes it.
    pub fn open(config: LogConfig) -> io::Result<Self> {
        let file = match config.path.to_str() {
            Some("-") => None,
            _ => Some(Open::at(&config.path)?),
        };
        Ok(Self {
            config,
            file: Mutex::new(file),
        })
    }

    /// One line, whole.
    pub fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.file.lock();
        let Some(open) = &mut *open else {
            return io::stdout().write_all(line);
        };
        let length = line.len() as u64;
        let longest = self.config.longest;
        if longest > 0 && open.length > 0 && open.length + length > longest {
            self.put_aside()?;
            *open = Open::at(&self.config.path)?;
        }
        open.file.write_all(line)?;
        open.length += length;
        Ok(())
    }

    fn put_aside(&self) -> io::Result<()> {
        let now = jiff::Timestamp::now();
        let stamp = now.strftime("%Y-%m-%dT%H-%M-%S%.9f").to_string();
        let to = self.beside(&stamp);
        fs::rename(&self.config.path, &to)?;
        if self.config.compress {
            compress(&to)?;
        }
        self.tidy();
        Ok(())
    }

    /// `audit.log` becomes `audit-STAMP.log`.
    fn beside(&self, stamp: &str) -> PathBuf {
        let (stem, extension) = self.name();
        self.config
            .path
            .with_file_name(format!("{stem}-{stamp}{extension}"))
    }

    fn name(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            let part = part.unwrap_or_default();
            part.to_string_lossy().into_owned()
        };
        let extension = match text(self.config.path.extension()) {
            none if none.is_empty() => none,
            some => format!(".{some}"),
        };
        (text(self.config.path.file_stem()), extension)
    }

    /// Deletes those that were put aside and are too many or too old. What cannot be deleted stays.
    fn tidy(&self) {
        let (stem, extension) = self.name();
        let folder = match self.config.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        let (begin, end) = (format!("{stem}-"), format!("{extension}.gz"));
        let mut aside: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let is_ours = name.ends_with(&extension) || name.ends_with(&end);
                name.starts_with(&begin) && is_ours
            })
            .collect();
        // Their names are in the order of time.
        aside.sort();
        aside.reverse();
        let oldest = SystemTime::now().checked_sub(self.config.kept_for);
        let is_old = |path: &Path| {
            let changed = fs::metadata(path).and_then(|about| about.modified()).ok();
            !self.config.kept_for.is_zero() && changed < oldest
        };
        for (index, path) in aside.iter().enumerate() {
            let one_too_many = self.config.backups > 0 && index >= self.config.backups;
            if one_too_many || is_old(path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let out = File::create(&name)?;
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_become_large_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = Log::open(LogConfig {
            path: path.clone(),
            longest: 20,
            backups: 2,
            kept_for: Duration::from_secs(3600),
            compress: true,
        })
        .unwrap();
        for number in 0..9 {
            log.write(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 8\n");
        let names = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        let last = dir.path().join(&names[1]);
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(File::open(last).unwrap());
        io::Read::read_to_string(&mut decoder, &mut text).unwrap();
        assert_eq!(text, "line 6\nline 7\n");
    }
}
