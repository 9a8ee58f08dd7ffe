//! The machine's file systems as JSON: `/api/v2.x/storage`.

use serde::Serialize;

use super::json::Time;
use super::text::quote;
use crate::Sample;

/// What is known of a file system beyond its figures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mounted {
    pub device: String,
    pub mountpoint: String,
    /// `root`, `docker-images`, …
    pub labels: Vec<String>,
    pub uuid: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct FsInfo<'a> {
    timestamp: Time,
    device: &'static str,
    mountpoint: &'a str,
    capacity: u64,
    available: u64,
    usage: u64,
    /// `null` where there is none.
    labels: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_free: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    #[error("non-existent label {}", quote(.0))]
    NoLabel(String),
    #[error("cadvisor: no such device")]
    NoDevice,
}

/// All file systems of the root's newest sample.
pub fn all<'a>(sample: &Sample, mounts: &'a [Mounted]) -> Vec<FsInfo<'a>> {
    rows(sample, mounts, |_| true)
}

pub fn labelled<'a>(
    sample: &Sample,
    mounts: &'a [Mounted],
    label: &str,
) -> Result<Vec<FsInfo<'a>>, StorageError> {
    let mounted = mounts
        .iter()
        .find(|m| m.labels.iter().any(|l| l == label))
        .ok_or_else(|| StorageError::NoLabel(label.to_owned()))?;
    Ok(rows(sample, mounts, |device| device == mounted.device))
}

pub fn with_uuid<'a>(
    sample: &Sample,
    mounts: &'a [Mounted],
    uuid: &str,
) -> Result<FsInfo<'a>, StorageError> {
    let mounted = mounts
        .iter()
        .find(|m| m.uuid.as_deref() == Some(uuid))
        .ok_or(StorageError::NoDevice)?;
    rows(sample, mounts, |device| device == mounted.device)
        .pop()
        .ok_or(StorageError::NoDevice)
}

fn rows<'a>(
    sample: &Sample,
    mounts: &'a [Mounted],
    wanted: impl Fn(&str) -> bool,
) -> Vec<FsInfo<'a>> {
    let wanted = sample
        .filesystems
        .iter()
        .filter(|fs| wanted(fs.device.as_str()));
    let row = |fs: &crate::sample::Filesystem| {
        let device = fs.device.as_str();
        let mounted = mounts.iter().find(|m| m.device == device);
        FsInfo {
            timestamp: sample.at.into(),
            device,
            mountpoint: mounted.map_or("", |m| &m.mountpoint),
            capacity: fs.capacity,
            available: fs.available,
            usage: fs.usage,
            labels: mounted
                .map(|m| m.labels.as_slice())
                .filter(|labels| !labels.is_empty()),
            inodes: (fs.has_inodes != 0).then_some(fs.inodes),
            inodes_free: (fs.has_inodes != 0).then_some(fs.inodes_free),
        }
    };
    wanted.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Symbol;
    use crate::rest::json;
    use crate::sample::Filesystem;
    use plimsoll_host::Timestamp;

    fn machine() -> (Sample, Vec<Mounted>) {
        let mut sample = Sample {
            at: Timestamp(1_794_778_560_815_753_964),
            ..Sample::default()
        };
        for device in ["/dev/vda", "/dev/shm"] {
            sample.filesystems.push(Filesystem {
                device: Symbol::new(device),
                kind: Symbol::new("vfs"),
                capacity: 270_553_174_016,
                usage: 18_897_776_640,
                available: 78_895_517_696,
                has_inodes: 1,
                inodes: 16_777_216,
                inodes_free: 16_256_135,
                ..Filesystem::default()
            });
        }
        let mounts = vec![Mounted {
            device: "/dev/vda".to_owned(),
            mountpoint: "/".to_owned(),
            labels: vec!["root".to_owned()],
            uuid: Some("u-1".to_owned()),
        }];
        (sample, mounts)
    }

    #[test]
    fn by_label_uuid_and_all() {
        let (sample, mounts) = machine();
        let root = labelled(&sample, &mounts, "root").unwrap();
        let expected = concat!(
            r#"[{"timestamp":"2026-11-15T21:36:00.815753964Z","device":"/dev/vda","mountpoint":"/","#,
            r#""capacity":270553174016,"available":78895517696,"usage":18897776640,"labels":["root"],"#,
            r#""inodes":16777216,"inodes_free":16256135}]"#,
        );
        assert_eq!(
            String::from_utf8(json::to_vec(&root).unwrap()).unwrap(),
            expected
        );
        assert_eq!(with_uuid(&sample, &mounts, "u-1").unwrap(), root[0]);
        let all = all(&sample, &mounts);
        assert_eq!((all.len(), all[1].labels), (2, None));
        let error = labelled(&sample, &mounts, "nope").unwrap_err();
        assert_eq!(error.to_string(), r#"non-existent label "nope""#);
        let error = with_uuid(&sample, &mounts, "nope").unwrap_err();
        assert_eq!(error.to_string(), "cadvisor: no such device");
    }
}
