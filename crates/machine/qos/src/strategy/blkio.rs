//! Limits and weights of disk I/O: of best-effort pods together, of single pods, and the disks' own cost models.
//!
//! A plan says what is wanted by meaning, so that it holds for v1 (`blkio.throttle.*`, `blkio.cost.*`) as for v2 (`io.max`,
//! `io.weight`, `io.cost.*`).

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::node_slo::{Block, IoSettings};
use plimsoll_api::priority::{KubeQos, QosClass};
use plimsoll_plan::{
    Asker, BlockDevice, CgroupPath, Effect, IoKnob, Knob, Note, Plan, Reason, Target, Value,
};

use crate::input::{Input, NodeView, Phase, PodView, Storage, VolumeSource};
use crate::strategy::Outcome;

const KUBELET_DIR: &str = "/var/lib/kubelet";
const BE: &str = "resourceQOSStrategy.beClass.blkioQOS";
const ROOT: &str = "resourceQOSStrategy.cgroupRoot.blkioQOS";
const ANNOTATION: &str = plimsoll_api::names::ANNOTATION_BLKIO_QOS;
const MOST_WEIGHT: i64 = 100;
const LATENCY_US: i64 = 3000;
const LATENCY_PERCENT: i64 = 95;

/// The last good effects of each cgroup: one block that is not known leaves all of its cgroup as it is.
#[derive(Debug, Clone, Default)]
pub struct State {
    last: BTreeMap<Arc<str>, Vec<Effect>>,
}

impl State {
    pub fn plan(&mut self, input: &Input<'_>) -> Outcome {
        let Some(node) = input.node else {
            return Outcome::Keep(None);
        };
        let mut plan = Plan::empty(Asker::BlkIo);
        let mut kept = BTreeMap::new();
        let strategy = &input.policy.qos;
        let classes = [(QosClass::Lsr, "lsrClass"), (QosClass::Ls, "lsClass")];
        for (class, name) in classes {
            let blkio = strategy.class(class).and_then(|class| class.blkio.as_ref());
            let blocks = blkio.filter(|blkio| blkio.enable == Some(true));
            if blocks.is_some_and(|blkio| blkio.blocks.iter().flatten().next().is_some()) {
                plan.notes.push(Note {
                    code: "blkio_class_unsupported",
                    about: format!("resourceQOSStrategy.{name}.blkioQOS").into(),
                    text: "Disk I/O of this class cannot be limited. It is passed over.".into(),
                });
            }
        }
        let be = strategy.be.as_ref().and_then(|class| class.blkio.as_ref());
        if let Some(be) = be.filter(|be| be.enable == Some(true)) {
            let path: CgroupPath = node.layout.tier(KubeQos::BestEffort).into();
            let blocks = be.blocks.iter().flatten();
            let found = limits(blocks, &path, node, None, Reason::new("blkio_class").by(BE));
            self.take(found, path, BE, &mut plan, &mut kept);
        }
        let root = strategy.cgroup_root.as_ref();
        let root = root.and_then(|root| root.blkio.as_ref());
        if let Some(root) = root.filter(|root| root.enable == Some(true)) {
            let path: CgroupPath = "/".into();
            let why = Reason::new("blkio_cost").by(ROOT);
            let found = costs(root.blocks.iter().flatten(), &path, node, why);
            self.take(found, path, ROOT, &mut plan, &mut kept);
        }
        for pod in input.all_pods() {
            let given = pod.annotations.blkio_qos.given();
            let (Some(given), Phase::Running) = (given, pod.phase) else {
                continue;
            };
            if pod.classes.qos == QosClass::None {
                continue;
            }
            let blocks = given.blocks.iter().flatten();
            let why = Reason::new("blkio_pod").by(ANNOTATION);
            let found = limits(blocks, &pod.cgroup, node, Some(pod), why);
            self.take(found, pod.cgroup.clone(), ANNOTATION, &mut plan, &mut kept);
        }
        self.last = kept;
        Outcome::Plan(plan)
    }

    fn take(
        &mut self,
        found: Result<Vec<Effect>, String>,
        path: CgroupPath,
        policy: &str,
        plan: &mut Plan,
        kept: &mut BTreeMap<Arc<str>, Vec<Effect>>,
    ) {
        let effects = found.unwrap_or_else(|problem| {
            plan.notes.push(Note {
                code: "blkio_block_unknown",
                about: policy.into(),
                text: format!("{problem}. Settings of {path} are left as they are.").into(),
            });
            self.last.remove(&path).unwrap_or_default()
        });
        plan.effects.extend(effects.iter().cloned());
        kept.insert(path, effects);
    }
}

fn limits<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    path: &CgroupPath,
    node: &NodeView,
    pod: Option<&PodView>,
    why: Reason,
) -> Result<Vec<Effect>, String> {
    let nothing = IoSettings::default();
    // Of two blocks of one disk the later one counts.
    let mut by_device = BTreeMap::new();
    for block in blocks {
        let device = device(block, node, pod)?;
        by_device.insert(device, block.settings.as_ref().unwrap_or(&nothing));
    }
    let mut effects = Vec::new();
    for (device, settings) in by_device {
        for (knob, limit) in [
            (IoKnob::ReadIops, settings.read_iops),
            (IoKnob::ReadBps, settings.read_bps),
            (IoKnob::WriteIops, settings.write_iops),
            (IoKnob::WriteBps, settings.write_bps),
        ] {
            // Nothing, and less, is no limit.
            let limit = u64::try_from(limit.unwrap_or(0)).unwrap_or(0);
            let value = Value::Bytes((limit > 0).then_some(limit));
            effects.push(Effect::new(target(path, device, knob), value, why));
        }
        let weight = settings.weight_percent.unwrap_or(MOST_WEIGHT);
        if (1..=MOST_WEIGHT).contains(&weight) {
            let target = target(path, device, IoKnob::Weight);
            effects.push(Effect::new(target, Value::Number(weight), why));
        }
    }
    Ok(effects)
}

fn costs<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    path: &CgroupPath,
    node: &NodeView,
    why: Reason,
) -> Result<Vec<Effect>, String> {
    let nothing = IoSettings::default();
    let mut by_device = BTreeMap::new();
    for block in blocks {
        let device = device(block, node, None)?;
        by_device.insert(device, block.settings.as_ref().unwrap_or(&nothing));
    }
    let mut effects = Vec::new();
    for (device, settings) in by_device {
        for (knob, line) in [
            (IoKnob::CostQos, qos(settings)),
            (IoKnob::CostModel, model(settings)),
        ] {
            if let Some(line) = line {
                let target = target(path, device, knob);
                effects.push(Effect::new(target, Value::Line(line), why));
            }
        }
    }
    Ok(effects)
}

fn target(path: &CgroupPath, device: BlockDevice, knob: IoKnob) -> Target {
    Target::cgroup(path, Knob::Io { device, knob })
}

/// What latencies a disk is to keep. Nothing is less than nothing.
fn qos(settings: &IoSettings) -> Option<Box<str>> {
    let [rpct, wpct] = [
        settings.read_latency_percent,
        settings.write_latency_percent,
    ]
    .map(|percent| percent.unwrap_or(LATENCY_PERCENT));
    let [rlat, wlat] = [settings.read_latency, settings.write_latency]
        .map(|latency| latency.unwrap_or(LATENCY_US));
    let fine = [rpct, wpct, rlat, wlat].iter().all(|one| *one >= 0);
    fine.then(|| {
        format!("enable=1 ctrl=user rpct={rpct} rlat={rlat} wpct={wpct} wlat={wlat}").into()
    })
}

/// What a disk can do, where the operator knows better than the kernel.
fn model(settings: &IoSettings) -> Option<Box<str>> {
    if settings.enable_user_model != Some(true) {
        return Some("ctrl=auto".into());
    }
    let figures = [
        ("rbps", settings.model_read_bps),
        ("rseqiops", settings.model_read_seq_iops),
        ("rrandiops", settings.model_read_rand_iops),
        ("wbps", settings.model_write_bps),
        ("wseqiops", settings.model_write_seq_iops),
        ("wrandiops", settings.model_write_rand_iops),
    ];
    let mut line = "ctrl=user".to_owned();
    for (name, figure) in figures {
        // A disk that can do nothing is none.
        let figure = figure.filter(|figure| *figure >= 1)?;
        line.push_str(&format!(" {name}={figure}"));
    }
    Some(line.into())
}

fn device(block: &Block, node: &NodeView, pod: Option<&PodView>) -> Result<BlockDevice, String> {
    let storage = &node.storage;
    let name = block.name.as_deref().unwrap_or_default();
    let found = match block.kind.as_deref() {
        Some("device") => of_device(storage, name),
        Some("volumegroup") => {
            let disk = storage.volume_groups.get(name);
            disk.and_then(|disk| storage.disks.get(disk).copied())
        }
        Some("podvolume") => pod.and_then(|pod| of_volume(storage, pod, name)),
        other => {
            let kind = other.unwrap_or_default();
            return Err(format!("blocks of type {kind:?} are not known"));
        }
    };
    found.ok_or_else(|| format!("the disk of block {name:?} is not known"))
}

fn of_device(storage: &Storage, device: &str) -> Option<BlockDevice> {
    let disk = storage.disks.get(device);
    let whole = || storage.disks.get(storage.partitions.get(device)?);
    disk.or_else(whole).copied()
}

fn of_volume(storage: &Storage, pod: &PodView, name: &str) -> Option<BlockDevice> {
    let volume = pod.volumes.iter().find(|volume| *volume.name == *name)?;
    let directory: &str = match &volume.source {
        VolumeSource::Claim(claim) => storage
            .claims
            .get(&(pod.namespace.clone(), claim.clone()))?,
        VolumeSource::Csi => name,
        VolumeSource::Other => return None,
    };
    let kubelet = match &*storage.kubelet_dir {
        "" => KUBELET_DIR,
        kubelet => kubelet.trim_end_matches('/'),
    };
    let uid = &pod.uid;
    let mount = format!("{kubelet}/pods/{uid}/volumes/kubernetes.io~csi/{directory}/mount");
    let device = storage.mounts.get(&*mount)?;
    of_device(storage, device).or_else(|| {
        let group = storage.logical_volumes.get(device)?;
        storage
            .disks
            .get(storage.volume_groups.get(group)?)
            .copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{BE as TIER, World};
    use serde_json::{Value as Json, json};

    const SDA: BlockDevice = BlockDevice { major: 8, minor: 0 };

    fn world(qos: Json) -> World {
        let mut world = World::new(4).policy(json!({"resourceQOSStrategy": qos}));
        let text = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(a, b)| ((*a).into(), (*b).into()))
                .collect()
        };
        world.node.storage = Storage {
            disks: [("/dev/sda".into(), SDA)].into(),
            partitions: text(&[("/dev/sda1", "/dev/sda")]),
            volume_groups: text(&[("pool", "/dev/sda")]),
            logical_volumes: text(&[("/dev/mapper/pool-lv", "pool")]),
            mounts: text(&[(
                "/var/lib/kubelet/pods/a/volumes/kubernetes.io~csi/pv1/mount",
                "/dev/mapper/pool-lv",
            )]),
            claims: [(("ns".into(), "data".into()), "pv1".into())].into(),
            kubelet_dir: "".into(),
        };
        world
    }

    fn found(state: &mut State, world: &World) -> (Vec<(String, IoKnob, Value)>, usize) {
        let Outcome::Plan(plan) = state.plan(&world.input()) else {
            panic!("no plan")
        };
        let effects = plan.effects.into_iter().map(|one| match one.target {
            Target::Cgroup {
                path,
                knob: Knob::Io { device, knob },
            } => {
                assert_eq!(device, SDA);
                (path.to_string(), knob, one.value)
            }
            other => panic!("{other:?}"),
        });
        (effects.collect(), plan.notes.len())
    }

    fn of_tier(path: &str, riops: Option<u64>, weight: i64) -> Vec<(String, IoKnob, Value)> {
        [
            (IoKnob::ReadIops, Value::Bytes(riops)),
            (IoKnob::ReadBps, Value::Bytes(None)),
            (IoKnob::WriteIops, Value::Bytes(None)),
            (IoKnob::WriteBps, Value::Bytes(None)),
            (IoKnob::Weight, Value::Number(weight)),
        ]
        .map(|(knob, value)| (path.to_owned(), knob, value))
        .into()
    }

    #[test]
    fn best_effort_pods_together() {
        for (kind, name) in [
            ("device", "/dev/sda"),
            ("device", "/dev/sda1"),
            ("volumegroup", "pool"),
        ] {
            let block = json!({"type": kind, "name": name, "ioCfg": {"readIOPS": 100, "ioWeightPercent": 40}});
            let world =
                world(json!({"beClass": {"blkioQOS": {"enable": true, "blocks": [block]}}}));
            let (effects, notes) = found(&mut State::default(), &world);
            assert_eq!((effects, notes), (of_tier(TIER, Some(100), 40), 0));
        }
    }

    #[test]
    fn one_unknown_block_leaves_all_as_they_are() {
        let block = |name: &str| json!({"type": "device", "name": name, "ioCfg": {"readIOPS": 7}});
        let policy =
            |blocks: Json| json!({"beClass": {"blkioQOS": {"enable": true, "blocks": blocks}}});
        let mut state = State::default();
        let good = found(&mut state, &world(policy(json!([block("/dev/sda")]))));
        let odd = found(
            &mut state,
            &world(policy(json!([block("/dev/sda"), block("/dev/sdx")]))),
        );
        assert_eq!((odd.0, odd.1), (good.0, 1));
        // Off: nothing is wanted any more.
        assert_eq!(found(&mut state, &world(json!({}))), (vec![], 0));
    }

    #[test]
    fn costs_of_disks() {
        let block =
            |settings: Json| json!({"type": "device", "name": "/dev/sda", "ioCfg": settings});
        let lines = |settings: Json| {
            let world = world(
                json!({"cgroupRoot": {"blkioQOS": {"enable": true, "blocks": [block(settings)]}}}),
            );
            let (effects, _) = found(&mut State::default(), &world);
            effects
                .into_iter()
                .map(|(path, knob, value)| {
                    assert_eq!(path, "/");
                    format!("{knob:?} {value}")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            lines(json!({"readLatency": 500})),
            [
                "CostQos enable=1 ctrl=user rpct=95 rlat=500 wpct=95 wlat=3000",
                "CostModel ctrl=auto"
            ]
        );
        let model = json!({
            "enableUserModel": true, "modelReadBPS": 1, "modelWriteBPS": 2, "modelReadSeqIOPS": 3,
            "modelWriteSeqIOPS": 4, "modelReadRandIOPS": 5, "modelWriteRandIOPS": 6, "writeLatencyPercent": -1,
        });
        assert_eq!(
            lines(model),
            ["CostModel ctrl=user rbps=1 rseqiops=3 rrandiops=5 wbps=2 wseqiops=4 wrandiops=6"]
        );
    }

    #[test]
    fn pods_by_their_volumes() {
        let rest = |blocks: Json| {
            json!({
                "metadata": {"annotations": {"koordinator.sh/blkioQOS": json!({"blocks": blocks}).to_string()}},
                "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "emptyDir": {}}]},
            })
        };
        let volume = json!([{"type": "podvolume", "name": "v", "ioCfg": {"readIOPS": 9}}]);
        let mut state = State::default();
        let one = world(json!({})).pod("a", "LS", "Burstable", rest(volume.clone()));
        let path = one.pods[0].cgroup.to_string();
        assert_eq!(found(&mut state, &one), (of_tier(&path, Some(9), 100), 0));
        // Only pods with a label, and only while they run.
        let unlabelled = world(json!({})).pod("a", "", "Burstable", rest(volume.clone()));
        assert_eq!(found(&mut State::default(), &unlabelled).0, vec![]);
        let other = json!([{"type": "podvolume", "name": "e"}]);
        let odd = world(json!({})).pod("a", "LS", "Burstable", rest(other));
        assert_eq!(found(&mut State::default(), &odd), (vec![], 1));
    }
}
