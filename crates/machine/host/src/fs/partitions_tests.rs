use super::*;
use crate::fs::{DmTable, parse_mountinfo};
use expect_test::{Expect, expect};

#[track_caller]
fn check_with(mountinfo: &str, storage: &ImageStorage, expected: Expect) -> Partitions {
    let mounts = parse_mountinfo(mountinfo.as_bytes()).unwrap();
    let found = Partitions::from_mounts(&mounts, storage, |mount| {
        (mount.source == "/dev/sdb").then_some((0, 48))
    });
    let mut text = String::new();
    for (device, p) in found.iter() {
        let labels: Vec<&str> = found.labels_of(device).map(Label::name).collect();
        text += &format!(
            "{device} {}:{} {} {} {} [{}]\n",
            p.major,
            p.minor,
            p.mount_point,
            p.filesystem,
            p.kind.name(),
            labels.join(" ")
        );
    }
    expected.assert_eq(&text);
    found
}

#[track_caller]
fn check(mountinfo: &str, expected: Expect) -> Partitions {
    check_with(mountinfo, &ImageStorage::default(), expected)
}

#[test]
fn kinds_that_count_and_kinds_that_do_not() {
    check(
        "22 27 0:21 / /proc rw - proc proc rw\n\
         24 27 0:6 / /dev rw - devtmpfs devtmpfs rw\n\
         25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw\n\
         27 1 254:0 / / rw - ext4 /dev/vda rw\n\
         30 25 0:27 / /dev/shm rw - tmpfs tmpfs rw\n\
         32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
         42 27 254:0 /srv /srv rw - ext4 /dev/vda rw\n\
         44 27 0:4 net:[4026532177] /run/netns/a rw - nsfs nsfs rw\n\
         45 27 8:1 / /boot/efi rw - vfat /dev/sda1 rw\n\
         46 27 7:3 / /snap/core ro - squashfs /dev/loop3 ro\n\
         47 27 0:60 / /mnt/f rw - fuse.sshfs host: rw\n",
        expect![[r#"
            /dev/loop3 7:3 /snap/core squashfs vfs []
            /dev/sda1 8:1 /boot/efi vfat vfs []
            /dev/shm 0:27 /dev/shm tmpfs vfs []
            /dev/vda 254:0 / ext4 vfs [root]
        "#]],
    );
}

#[test]
fn what_lies_behind_a_server_may_hang() {
    let mounts = parse_mountinfo(
        b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
          47 27 0:60 / /mnt/f rw - fuse.sshfs host: rw\n\
          48 47 8:1 / /mnt/f/disk rw - xfs /dev/sdb rw\n\
          49 27 0:61 / /srv rw - nfs4 host:/srv rw\n",
    );
    let found = Partitions::from_mounts(&mounts.unwrap(), &ImageStorage::default(), |_| None);
    for (point, expected) in [
        ("/", false),
        ("/mnt/f", true),
        ("/mnt/f/disk", true),
        ("/mnt/few", false),
        ("/srv", true),
    ] {
        assert_eq!(found.may_hang(point), expected, "{point}");
    }
}

#[test]
fn overlays_are_kept_apart_by_number() {
    check(
        "1 0 8:1 / / rw - xfs /dev/sda1 rw\n\
         51 27 0:42 / /run/a/rootfs rw - overlay overlay rw\n\
         54 27 0:44 / /run/b/rootfs rw - overlay overlay rw\n\
         55 27 0:44 /etc /run/b/bound rw - overlay overlay rw\n",
        expect![[r#"
            /dev/sda1 8:1 / xfs vfs [root]
            overlay_0-42 0:42 /run/a/rootfs overlay vfs []
            overlay_0-44 0:44 /run/b/rootfs overlay vfs []
        "#]],
    );
}

#[test]
fn an_overlay_root_goes_by_its_plain_name_too() {
    check(
        "1 0 0:459 / / rw - overlay overlay rw\n",
        expect![[r#"
            overlay 0:459 / overlay vfs [root]
            overlay_0-459 0:459 / overlay vfs []
        "#]],
    );
}

#[test]
fn btrfs_numbers_are_corrected_and_bind_mounts_left_out() {
    let found = check(
        "1 0 0:31 /@ / rw - btrfs /dev/sdb rw\n\
         2 1 0:31 /@home /home rw - btrfs /dev/sdb rw\n\
         3 1 0:40 / /tank rw - zfs tank/data rw\n\
         4 1 0:50 / /mnt/a rw - nfs4 srv:/a rw\n\
         5 1 0:50 / /mnt/b rw - nfs4 srv:/b rw\n",
        expect![[r#"
            /dev/sdb 0:48 / btrfs vfs [root]
            srv:/a 0:50 /mnt/a nfs4 vfs []
            srv:/b 0:50 /mnt/b nfs4 vfs []
            tank/data 0:40 /tank zfs zfs []
        "#]],
    );
    assert!(found.get("srv:/a").unwrap().shares_figures());
    assert_eq!(found.device_of_number(0, 40), Some("tank/data"));
}

#[test]
fn labels_of_runtimes() {
    let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
         2 1 8:2 / /var/lib rw - xfs /dev/sda2 rw\n\
         3 1 8:3 / /var/lib/docker rw - xfs /dev/sda3 rw\n\
         4 1 8:4 / /var/lib/docker/overlay2 rw - xfs /dev/sda4 rw\n\
         5 1 8:5 / /images rw - xfs /dev/sda5 rw\n";
    let docker = DockerStorage {
        root: "/var/lib/docker".into(),
        pool: None,
    };
    let crio = CrioStorage {
        root: "/var/lib/containers/storage".into(),
        driver: "overlay".into(),
        image_store: Some("/images".into()),
    };
    check_with(
        mounts,
        &ImageStorage {
            docker: Some(docker),
            crio: Some(crio.clone()),
        },
        expect![[r#"
            /dev/sda1 8:1 / ext4 vfs [root]
            /dev/sda2 8:2 /var/lib xfs vfs [crio-containers]
            /dev/sda3 8:3 /var/lib/docker xfs vfs []
            /dev/sda4 8:4 /var/lib/docker/overlay2 xfs vfs [docker-images]
            /dev/sda5 8:5 /images xfs vfs [crio-images]
        "#]],
    );
    let pool = DmTable {
        major: 253,
        minor: 7,
        block_sectors: 128,
    };
    check_with(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n",
        &ImageStorage {
            docker: Some(DockerStorage {
                root: "/var/lib/docker".into(),
                pool: Some(("docker-8:1-1-pool".into(), pool)),
            }),
            crio: Some(CrioStorage {
                image_store: None,
                ..crio
            }),
        },
        expect![[r#"
            /dev/sda1 8:1 / ext4 vfs [root crio-images]
            docker-8:1-1-pool 253:7  devicemapper devicemapper [docker-images]
        "#]],
    );
}

#[test]
fn the_device_of_a_directory() {
    let temp = tempfile::tempdir().unwrap();
    let sub = temp.path().join("data/volume");
    std::fs::create_dir_all(&sub).unwrap();
    let stat = rustix::fs::stat(&sub).unwrap();
    let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
    let root = HostRoot::new(temp.path());
    let line = |device: &str| format!("1 0 {device} / /data rw - ext4 /dev/sdx rw\n");

    let by_number = parse_mountinfo(line(&format!("{major}:{minor}")).as_bytes()).unwrap();
    let found = Partitions::from_mounts(&by_number, &ImageStorage::default(), |_| None);
    let device = found.device_of_dir(&root, Path::new("/data/volume"));
    assert_eq!(device.unwrap(), Some("/dev/sdx"));

    let by_point = parse_mountinfo(line("4000:1").as_bytes()).unwrap();
    let found = Partitions::from_mounts(&by_point, &ImageStorage::default(), |_| None);
    let device = found.device_of_dir(&root, Path::new("/data/volume"));
    assert_eq!(device.unwrap(), Some("/dev/sdx"));
    assert!(found.device_of_dir(&root, Path::new("/none")).is_err());
}

#[test]
fn this_machine() {
    let root = HostRoot::new("/");
    let mounts = super::super::read_mounts(&root, &mut crate::ReadBuf::default()).unwrap();
    let storage = ImageStorage::default();
    let found = Partitions::new(&root, &mounts, &storage);
    assert!(found.labelled(Label::Root).is_some());
}
