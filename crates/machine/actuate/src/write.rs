//! Carries out one step.

use std::io;

use plimsoll_api::cpus::CpuSet;
use plimsoll_plan::Target;
use plimsoll_plan::Value;

use crate::files::{Files, is_gone};
use crate::place::Owner;
use crate::text::parse;
use crate::{KernelFile, Piece, Place};

/// A write that failed, with all that a person needs to understand it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub file: KernelFile,
    pub text: String,
    pub error: io::Error,
}

impl Failure {
    pub fn is_gone(&self) -> bool {
        is_gone(&self.error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text.trim_end();
        write!(f, "write {text:?} to {}: {}", self.file, self.error)
    }
}

pub(crate) fn perform(files: &dyn Files, place: &Place, pieces: &[Piece]) -> Result<(), Failure> {
    for piece in pieces {
        let (file, text, outcome) = match piece {
            Piece::Main(text) => {
                let outcome = files.write(&place.file, text);
                let outcome = match outcome {
                    Err(error) if text == "\n" => clear_cpuset(files, place, error),
                    outcome => outcome,
                };
                (&place.file, text.as_str(), outcome)
            }
            Piece::Period(text) => {
                let file = place.period.as_ref().unwrap_or(&place.file);
                (file, text.as_str(), files.write(file, text))
            }
            Piece::Append(text) => {
                let outcome = files.append(&place.file, text);
                // A thread that ended needs no group.
                let ended = |error: &io::Error| {
                    error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
                };
                let outcome = match outcome {
                    Err(error) if ended(&error) => Ok(()),
                    outcome => outcome,
                };
                (&place.file, text.as_str(), outcome)
            }
            Piece::MakeDir => (&place.file, "a new group", files.make_dir(&place.file)),
            Piece::RemoveDir => (&place.file, "no group", files.remove_dir(&place.file)),
        };
        outcome.map_err(|error| Failure {
            file: file.clone(),
            text: text.to_owned(),
            error,
        })?;
    }
    Ok(())
}

/// The kernel lets nobody empty the cpuset of a cgroup that has tasks. What it would inherit is the same to them.
fn clear_cpuset(files: &dyn Files, place: &Place, error: io::Error) -> io::Result<()> {
    let no_space = rustix::io::Errno::NOSPC.raw_os_error();
    if error.raw_os_error() != Some(no_space) {
        return Err(error);
    }
    match inherited_cpus(files, place) {
        Some(cpus) => files.write(&place.file, &cpus.to_string()),
        None => Err(error),
    }
}

/// The CPUs that a cgroup without a cpuset of its own has on v2.
fn inherited_cpus(files: &dyn Files, place: &Place) -> Option<CpuSet> {
    let parent = place.file.below.parent()?.parent()?;
    let file = KernelFile::new(&place.file.top, parent.join("cpuset.cpus.effective"));
    let text = files.read(&file).ok()??;
    let cpus: CpuSet = std::str::from_utf8(&text).ok()?.parse().ok()?;
    (!cpus.is_empty()).then_some(cpus)
}

/// Whether an empty cpuset is wanted and this is what the kernel allows instead.
pub(crate) fn is_inherited(files: &dyn Files, place: &Place, wanted: &Value, has: &Value) -> bool {
    match (wanted, has) {
        (Value::Cpus(wanted), Value::Cpus(has)) if wanted.is_empty() => {
            inherited_cpus(files, place).as_ref() == Some(has)
        }
        _ => false,
    }
}

/// What was found where a target should be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Look {
    /// The cgroup or the process is not there.
    Absent,
    /// It is there and has no such file.
    Unsupported,
    Value {
        owner: u64,
        has: Value,
    },
    /// It cannot be read or understood.
    Bad(String),
}

/// Reads a target; `reads` counts files.
pub(crate) fn look(files: &dyn Files, target: &Target, place: &Place, reads: &mut u64) -> Look {
    let owner = match owner(files, &place.owner, reads) {
        Ok(Some(owner)) => owner,
        Ok(None) => return Look::Absent,
        Err(error) => return Look::Bad(format!("look for the owner of {}: {error}", place.file)),
    };
    match read(files, target, place, reads) {
        Ok(Some(has)) => Look::Value { owner, has },
        Ok(None) if matches!(place.owner, Owner::Process { .. }) => Look::Absent,
        Ok(None) => Look::Unsupported,
        Err(error) => Look::Bad(error),
    }
}

fn owner(files: &dyn Files, owner: &Owner, reads: &mut u64) -> io::Result<Option<u64>> {
    match owner {
        Owner::Machine => Ok(Some(0)),
        Owner::Directory(dir) => files.inode(dir),
        Owner::Process { stat, start_ticks } => {
            *reads += 1;
            let found = files.read(stat)?;
            let started = found.as_deref().and_then(started);
            Ok(started.filter(|started| started == start_ticks))
        }
    }
}

/// The 22nd field of `/proc/PID/stat`. The second may have blanks and brackets in it.
fn started(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = plimsoll_host::parse::words(stat.get(end + 1..)?);
    plimsoll_host::parse::u64(fields.nth(19)?)
}

pub(crate) fn read(
    files: &dyn Files,
    target: &Target,
    place: &Place,
    reads: &mut u64,
) -> Result<Option<Value>, String> {
    use plimsoll_plan::{Knob, ResctrlKnob};
    match target {
        // A folder, not a file.
        Target::Resctrl {
            knob: ResctrlKnob::Exists,
            ..
        } => {
            let inode = files
                .inode(&place.file)
                .map_err(|error| format!("look for {}: {error}", place.file))?;
            return Ok(Some(Value::Switch(inode.is_some())));
        }
        // It cannot be read.
        Target::Cgroup {
            knob: Knob::MemoryReclaim,
            ..
        } => return Ok(Some(Value::Bytes(None))),
        _ => {}
    }
    *reads += 1;
    let failed = |file: &KernelFile, error: io::Error| format!("read {file}: {error}");
    let text = match files.read(&place.file) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(error) => return Err(failed(&place.file, error)),
    };
    let period = match &place.period {
        None => None,
        Some(file) => {
            *reads += 1;
            files.read(file).map_err(|error| failed(file, error))?
        }
    };
    match parse(target, place.form, &text, period.as_deref()) {
        Some(value) => Ok(Some(value)),
        None if text.len() <= 64 => {
            let shown = String::from_utf8_lossy(&text).trim().to_owned();
            Err(format!("{}: cannot understand {shown:?}", place.file))
        }
        None => Err(format!("{}: cannot understand it", place.file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 99 1\n";
        assert_eq!(started(stat), Some(4242));
        assert_eq!(started(b"7 (a"), None);
        assert_eq!(started(b""), None);
    }
}
