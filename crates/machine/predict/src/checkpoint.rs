//! Models on disk: a file each, in the form that Koordinator's agent reads and writes.
//!
//! A file is written beside its place and then moved there, so that a crash leaves the old one or the new one. What
//! cannot be read, or is of nobody any more, is removed: a forecast that is wrong is worse than one that begins anew.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::histogram::{Buckets, Histogram, Saved};
use crate::model::{HalfLives, Model};
use crate::models::Models;
use crate::subject::Subject;

/// Files that say nothing are of the first version.
const VERSION: u32 = 1;
const TEMPORARY: &str = "tmp";

#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(rename = "UID")]
    uid: String,
    #[serde(rename = "CPU")]
    cpu: HistogramDocument,
    #[serde(rename = "Memory")]
    memory: HistogramDocument,
    #[serde(rename = "LastUpdated")]
    updated: Timestamp,
    #[serde(rename = "Version", default = "first_version")]
    version: u32,
}

fn first_version() -> u32 {
    VERSION
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HistogramDocument {
    reference_timestamp: Option<Timestamp>,
    #[serde(default)]
    bucket_weights: BTreeMap<usize, u32>,
    #[serde(default)]
    total_weight: f64,
}

#[derive(Debug, Error)]
pub enum Unreadable {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("is of version {0}, which is newer than this program")]
    Newer(u32),
    #[error("is of {0}, which is not what its name says")]
    OtherSubject(String),
    #[error("has buckets that do not exist")]
    Buckets,
}

/// What was found in a folder.
#[derive(Debug, Default)]
pub struct Restored {
    pub models: usize,
    /// Removed: they could not be read, or nobody knows whose they are.
    pub removed: Vec<PathBuf>,
    /// Of a newer version: left alone, and not used.
    pub left: Vec<PathBuf>,
}

pub fn encode(subject: &Subject, model: &Model) -> Vec<u8> {
    let document = Document {
        uid: subject.to_string(),
        cpu: of_histogram(model.cpu.save()),
        memory: of_histogram(model.memory.save()),
        updated: whole_second(model.updated),
        version: VERSION,
    };
    serde_json::to_vec(&document).unwrap_or_default()
}

pub fn decode(subject: &Subject, bytes: &[u8], half_lives: HalfLives) -> Result<Model, Unreadable> {
    let document: Document = serde_json::from_slice(bytes)?;
    if document.version > VERSION {
        return Err(Unreadable::Newer(document.version));
    }
    if document.uid != subject.to_string() {
        return Err(Unreadable::OtherSubject(document.uid));
    }
    let load = |buckets, half_life, document| {
        Histogram::load(buckets, half_life, &to_saved(document)).ok_or(Unreadable::Buckets)
    };
    Ok(Model {
        cpu: load(Buckets::CPU, half_lives.cpu, document.cpu)?,
        memory: load(Buckets::MEMORY, half_lives.memory, document.memory)?,
        updated: document.updated,
        saved: Some(document.updated),
    })
}

fn of_histogram(saved: Saved) -> HistogramDocument {
    HistogramDocument {
        reference_timestamp: saved.reference,
        bucket_weights: saved.weights,
        total_weight: saved.total,
    }
}

fn to_saved(document: HistogramDocument) -> Saved {
    Saved {
        // What was never trained says the beginning of time.
        reference: document.reference_timestamp.filter(|at| at.as_second() > 0),
        weights: document.bucket_weights,
        total: document.total_weight,
    }
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// On disk for certain, or not at all.
pub fn write(folder: &Path, subject: &Subject, model: &Model) -> io::Result<()> {
    let path = folder.join(subject.to_string());
    let temporary = temporary(&path);
    let written = (|| {
        let mut file = File::create(&temporary)?;
        file.write_all(&encode(subject, model))?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    })();
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

pub fn remove(folder: &Path, subject: &Subject) -> io::Result<()> {
    match fs::remove_file(folder.join(subject.to_string())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Takes up what an earlier process left. `known` says whose models are still of use.
pub fn restore(
    folder: &Path,
    models: &mut Models,
    known: impl Fn(&Subject) -> bool,
) -> io::Result<Restored> {
    fs::create_dir_all(folder)?;
    let mut restored = Restored::default();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        let subject = path
            .file_name()
            .and_then(|name| name.to_str()?.parse::<Subject>().ok())
            .filter(|subject| !is_temporary(&path) && known(subject));
        let read = subject.and_then(|subject| {
            let half_lives = models.config().half_lives;
            let model = decode(&subject, &fs::read(&path).ok()?, half_lives);
            Some((subject, model))
        });
        match read {
            Some((subject, Ok(model))) => {
                models.insert(subject, model);
                restored.models += 1;
            }
            Some((_, Err(Unreadable::Newer(version)))) => {
                tracing::warn!(path = %path.display(), version, "a checkpoint of a newer version is left alone");
                restored.left.push(path);
            }
            other => {
                if let Some((_, Err(error))) = other {
                    tracing::warn!(path = %path.display(), %error, "a checkpoint cannot be read, and is removed");
                }
                let _ = fs::remove_file(&path);
                restored.removed.push(path);
            }
        }
    }
    Ok(restored)
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(TEMPORARY);
    name.into()
}

fn is_temporary(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == TEMPORARY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Amount;

    /// As Koordinator's agent wrote it on a real node.
    const FOREIGN: &str = r#"{"UID":"__node-koord-prod__","CPU":{"referenceTimestamp":"2026-11-16T00:00:00Z","bucketWeights":{"13":2489,"14":2492,"17":10000,"18":2494},"totalWeight":5.4491009917316555},"Memory":{"referenceTimestamp":"2026-11-16T00:00:00Z","bucketWeights":{"0":3993,"2":10000},"totalWeight":6.176056312775891},"LastUpdated":"2026-11-15T19:43:50Z"}"#;

    fn prod() -> Subject {
        "__node-koord-prod__".parse().unwrap()
    }

    fn trained() -> Model {
        let at = "2026-11-15T19:00:00Z".parse().unwrap();
        let mut model = Model::new(at);
        for n in 1..9 {
            let usage = Amount {
                cpu: f64::from(n) * 0.3,
                memory: f64::from(n) * 3e8,
            };
            model.add(usage, at);
        }
        model
    }

    #[test]
    fn files_of_others_are_read_and_written_alike() {
        let model = decode(&prod(), FOREIGN.as_bytes(), HalfLives::default()).unwrap();
        let mut back: serde_json::Value = serde_json::from_slice(&encode(&prod(), &model)).unwrap();
        assert_eq!(
            back.as_object_mut().unwrap().remove("Version"),
            Some(1.into())
        );
        let mut original: serde_json::Value = serde_json::from_str(FOREIGN).unwrap();
        for histogram in ["CPU", "Memory"] {
            let (found, wanted) = (
                back[histogram]["totalWeight"].take(),
                original[histogram]["totalWeight"].take(),
            );
            assert!((found.as_f64().unwrap() - wanted.as_f64().unwrap()).abs() < 1e-9);
        }
        assert_eq!(back, original);
    }

    #[test]
    fn a_model_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let pod = Subject::Pod("p".into());
        write(folder.path(), &pod, &trained()).unwrap();
        let mut models = Models::default();
        let restored = restore(folder.path(), &mut models, |_| true).unwrap();
        assert_eq!(restored.models, 1);
        assert_eq!(models.predict(&pod), Some(trained().predict()));
        remove(folder.path(), &pod).unwrap();
        remove(folder.path(), &pod).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_of_no_use_goes() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("__node-koord-prod__", FOREIGN);
        put("__node__", FOREIGN);
        put("broken", "{");
        put("gone", &FOREIGN.replace("__node-koord-prod__", "gone"));
        put(
            "newer",
            &FOREIGN
                .replace("__node-koord-prod__", "newer")
                .replace("\"UID\"", "\"Version\":2,\"UID\""),
        );
        put(
            "buckets",
            &FOREIGN
                .replace("__node-koord-prod__", "buckets")
                .replace("\"18\"", "\"1800\""),
        );
        put("half.tmp", FOREIGN);
        let mut models = Models::default();
        let restored = restore(folder.path(), &mut models, |subject| {
            *subject != Subject::Pod("gone".into())
        })
        .unwrap();
        assert_eq!(
            (restored.models, restored.removed.len(), restored.left.len()),
            (1, 5, 1)
        );
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["__node-koord-prod__", "newer"]);
    }
}
