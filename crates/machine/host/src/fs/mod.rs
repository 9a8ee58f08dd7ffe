//! File systems and disks: mounts, usage, I/O statistics.

mod beneath;
mod block;
mod diskstats;
mod local;
mod mount_table;
mod mountinfo;
mod partitions;
mod statfs;
mod tools;
mod walk;

pub use beneath::Beneath;
pub use block::{DeviceNames, Disk, disks, filesystem_uuids};
pub use diskstats::{
    DeviceName, DiskCounters, DiskRow, find_disk, parse_diskstats, read_diskstats,
};
pub use local::LocalStorage;
pub use mount_table::{MountTable, Mounts};
pub use mountinfo::{Mount, overlay_upper_dir, parse_mountinfo, read_mounts, vfs_directory};
pub use partitions::{
    CrioStorage, DockerStorage, FsKind, ImageStorage, Label, Partition, Partitions,
};
pub use statfs::{DeviceNumber, FsUsage, StatfsWorker, statfs, statfs_mounted};
pub use tools::{DmPool, DmTable, parse_dm_status, parse_dm_table, parse_zfs_list};
pub use walk::{DirWalk, Ended, Walk, Walked, dir_usage, files_usage};
