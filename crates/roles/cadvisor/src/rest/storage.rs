//! The machine's file systems as JSON: `/api/v2.x/storage`.

use serde::Serialize;

use super::json::Time;
use plimsoll_golang::strconv::quote;
use plimsoll_observe::machine::Storage;

#[derive(Debug, PartialEq, Serialize)]
pub struct FsInfo<'a> {
    timestamp: Time,
    device: &'a str,
    mountpoint: &'a str,
    capacity: u64,
    available: u64,
    usage: u64,
    /// `null` where there is none.
    labels: Option<&'a [&'static str]>,
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

impl<'a> From<&'a Storage> for FsInfo<'a> {
    fn from(fs: &'a Storage) -> Self {
        Self {
            timestamp: fs.at.into(),
            device: &fs.device,
            mountpoint: &fs.mount_point,
            capacity: fs.capacity,
            available: fs.available,
            usage: fs.usage,
            labels: Some(fs.labels.as_slice()).filter(|labels| !labels.is_empty()),
            inodes: fs.inodes.map(|(total, _)| total),
            inodes_free: fs.inodes.map(|(_, free)| free),
        }
    }
}

pub fn all(storage: &[Storage]) -> Vec<FsInfo<'_>> {
    storage.iter().map(FsInfo::from).collect()
}

pub fn labelled<'a>(storage: &'a [Storage], label: &str) -> Result<Vec<FsInfo<'a>>, StorageError> {
    let found = storage.iter().find(|fs| fs.labels.contains(&label));
    match found {
        Some(fs) => Ok(vec![FsInfo::from(fs)]),
        None => Err(StorageError::NoLabel(label.to_owned())),
    }
}

pub fn with_uuid<'a>(storage: &'a [Storage], uuid: &str) -> Result<FsInfo<'a>, StorageError> {
    let found = storage.iter().find(|fs| fs.uuid.as_deref() == Some(uuid));
    found.map(FsInfo::from).ok_or(StorageError::NoDevice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::json;
    use plimsoll_host::Timestamp;

    fn storage() -> Vec<Storage> {
        let root = Storage {
            at: Timestamp(1_794_778_560_815_753_964),
            device: "/dev/vda".to_owned(),
            mount_point: "/".to_owned(),
            capacity: 270_553_174_016,
            available: 78_895_517_696,
            usage: 18_897_776_640,
            labels: vec!["root"],
            inodes: Some((16_777_216, 16_256_135)),
            uuid: Some("u-1".to_owned()),
        };
        vec![root, Storage::default()]
    }

    #[test]
    fn by_label_uuid_and_all() {
        let storage = storage();
        let root = labelled(&storage, "root").unwrap();
        let expected = concat!(
            r#"[{"timestamp":"2026-11-15T21:36:00.815753964Z","device":"/dev/vda","mountpoint":"/","#,
            r#""capacity":270553174016,"available":78895517696,"usage":18897776640,"labels":["root"],"#,
            r#""inodes":16777216,"inodes_free":16256135}]"#,
        );
        assert_eq!(
            String::from_utf8(json::to_vec(&root).unwrap()).unwrap(),
            expected
        );
        assert_eq!(with_uuid(&storage, "u-1").unwrap(), root[0]);
        let all = all(&storage);
        assert_eq!((all.len(), all[1].labels), (2, None));
        let error = labelled(&storage, "nope").unwrap_err();
        assert_eq!(error.to_string(), r#"non-existent label "nope""#);
        let error = with_uuid(&storage, "nope").unwrap_err();
        assert_eq!(error.to_string(), "cadvisor: no such device");
    }
}
