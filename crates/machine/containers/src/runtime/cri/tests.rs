use prost::Message;
use tonic::transport::Endpoint;

use super::*;

const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

/// A client that never connects: only its translations are under test.
fn cri(namespace: Namespace) -> Cri {
    let options = Options {
        env_whitelist: vec!["APP".to_owned()],
    };
    let rpc = Rpc::of(Endpoint::from_static("http://localhost").connect_lazy());
    Cri::new(rpc, namespace, &options)
}

fn labels() -> HashMap<String, String> {
    [(POD_NAME, "p"), (POD_NAMESPACE, "ns"), (POD_UID, "u")]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn info(pid: i64) -> Verbose {
    let text = format!(
        r#"{{"pid":{pid},"image":"pause:1","extra":[1],"runtimeSpec":{{"ociVersion":"1",
        "process":{{"env":["APP_A=1","X=2"]}},"root":{{"path":"/var/lib/x/merged"}}}}}}"#
    );
    verbose(&HashMap::from([("info".to_owned(), text)]))
}

fn status() -> wire::ContainerStatus {
    wire::ContainerStatus {
        id: ID.to_owned(),
        metadata: Some(wire::ContainerMetadata {
            name: "main".to_owned(),
            attempt: 3,
        }),
        created_at: 5,
        started_at: 6,
        image: Some(wire::ImageSpec {
            image: "img".to_owned(),
            ..Default::default()
        }),
        labels: labels(),
        annotations: HashMap::from([(RESTART_COUNT.to_owned(), "3".to_owned())]),
        log_path: "/var/log/pods/x/0.log".to_owned(),
        ..Default::default()
    }
}

fn known(seen: InspectResult) -> Identity {
    match seen {
        InspectResult::CgroupTree(identity) => *identity,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_container_of_crio() {
    let found = known(cri(Namespace::Crio).container_seen(status(), &info(42)));
    assert_eq!(found.aliases, ["k8s_main_p_ns_u_3", ID]);
    assert_eq!(found.label("restartcount"), "3");
    assert_eq!(found.pid, Some(42));
    assert!(!found.owns_network);
    assert_eq!(found.envs.len(), 1);
    let layer = found.writable_layer.unwrap();
    assert_eq!(layer.to_str(), Some("/var/lib/x/diff"));
    let log = found.log_dir.unwrap();
    assert_eq!(log.to_str(), Some("/var/log/pods/x/0.log"));
}

#[tokio::test]
async fn a_sandbox_of_crio_owns_the_network() {
    let status = wire::PodSandboxStatus {
        id: ID.to_owned(),
        metadata: Some(wire::PodSandboxMetadata {
            name: "p".to_owned(),
            uid: "u".to_owned(),
            namespace: "ns".to_owned(),
            attempt: 0,
        }),
        created_at: 5,
        labels: labels(),
    };
    let found = known(cri(Namespace::Crio).sandbox_seen(status, &info(42)));
    assert_eq!(found.aliases, ["k8s_POD_p_ns_u_0", ID]);
    assert_eq!(found.label(CONTAINER_NAME), "POD");
    assert_eq!(found.image, "pause:1");
    assert!(found.owns_network);
}

#[tokio::test]
async fn containerd_behind_cri_looks_like_containerd() {
    let cri = cri(Namespace::Containerd);
    let found = known(cri.container_seen(status(), &info(42)));
    assert_eq!(found.label(KIND_LABEL), "container");
    assert_eq!(found.label("restartcount"), "");
    assert_eq!(found.writable_layer, None);
    assert_eq!(found.started, None);
    // Created but not started.
    let seen = cri.container_seen(status(), &Verbose::default());
    assert!(matches!(seen, InspectResult::Starting(_)));
}

#[test]
fn garbage_in_the_verbose_part_costs_only_that_part() {
    let info = HashMap::from([("info".to_owned(), "{]".to_owned())]);
    assert_eq!(verbose(&info).pid, 0);
}

#[test]
fn a_status_message_by_its_tags() {
    // id (1), state exited (3), exit code -1 (7) as a ten-byte varint, log path (15), an unknown field (19).
    let mut bytes = vec![0x0a, 1, b'x', 0x18, 2, 0x38];
    bytes.extend([0xff; 9]);
    bytes.extend([0x01, 0x7a, 1, b'l', 0x98, 0x01, 1]);
    let status = wire::ContainerStatus::decode(bytes.as_slice()).unwrap();
    assert_eq!(status.ended(), Some(-1));
    assert_eq!(status.log_path, "l");
}

#[test]
fn disk_usage_by_its_tags() {
    // One image file system: time 7 (1), directory (2), bytes 300 (3), inodes 5 (4).
    let fs = [
        0x08, 7, 0x12, 4, 0x0a, 2, b'/', b'd', 0x1a, 3, 0x08, 0xac, 0x02, 0x22, 2, 0x08, 5,
    ];
    let mut bytes = vec![0x0a, fs.len() as u8];
    bytes.extend(fs);
    let answer = wire::ImageFsInfoResponse::decode(bytes.as_slice()).unwrap();
    let found = told(answer).unwrap();
    let expected = FsUse {
        at: Timestamp(7),
        dir: "/d".to_owned(),
        bytes: Some(300),
        inodes: Some(5),
    };
    assert_eq!(found.images, expected);
    assert_eq!(found.containers, expected, "one place for both");
    assert_eq!(told(wire::ImageFsInfoResponse::default()), None);
}
