//! Pods and the classes they fall into.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::ids::{ClassId, LabelClassId, LocalClassId, NodeId, PodId, TallyId};
use crate::model::{LocalSpec, Pod, PodSpec};

#[derive(Debug, Clone)]
pub struct PodRecord {
    pub pod: Arc<Pod>,
    pub class: ClassId,
    /// Where it takes room.
    pub place: Option<NodeId>,
    /// It takes room by our decision; the API server has not confirmed that yet.
    pub assumed: bool,
}

/// Pods with equal specs.
#[derive(Debug)]
pub struct Class {
    pub spec: Arc<PodSpec>,
    pub local: LocalClassId,
    pub live: LabelClassId,
    pub terminating: LabelClassId,
    /// Tallies that count these pods for terms that they own, and by how much.
    pub owned: Box<[(TallyId, i32)]>,
    pods: u32,
}

#[derive(Debug, Default)]
pub struct Pods {
    records: Vec<Option<PodRecord>>,
    free: Vec<PodId>,
    by_uid: FxHashMap<Arc<str>, PodId>,
}

impl Pods {
    pub fn find(&self, uid: &str) -> Option<PodId> {
        self.by_uid.get(uid).copied()
    }

    pub fn get(&self, id: PodId) -> Option<&PodRecord> {
        self.records.get(id.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: PodId) -> Option<&mut PodRecord> {
        self.records.get_mut(id.index())?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (PodId, &PodRecord)> {
        self.records
            .iter()
            .enumerate()
            .filter_map(|(index, record)| Some((PodId::from_index(index), record.as_ref()?)))
    }

    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    pub(super) fn insert(&mut self, record: PodRecord) -> PodId {
        let uid = Arc::clone(&record.pod.uid);
        let id = match self.free.pop() {
            Some(id) => {
                self.records[id.index()] = Some(record);
                id
            }
            None => {
                self.records.push(Some(record));
                PodId::from_index(self.records.len() - 1)
            }
        };
        self.by_uid.insert(uid, id);
        id
    }

    pub(super) fn remove(&mut self, id: PodId) -> Option<PodRecord> {
        let record = self.records.get_mut(id.index())?.take()?;
        self.by_uid.remove(&record.pod.uid);
        self.free.push(id);
        Some(record)
    }
}

#[derive(Debug, Default)]
pub struct Classes {
    list: Vec<Class>,
    by_spec: FxHashMap<Arc<PodSpec>, ClassId>,
    locals: Vec<Arc<LocalSpec>>,
    by_local: FxHashMap<Arc<LocalSpec>, LocalClassId>,
    /// Classes that no pod is in any more.
    idle: usize,
}

impl Classes {
    pub fn get(&self, id: ClassId) -> &Class {
        &self.list[id.index()]
    }

    pub fn local(&self, id: LocalClassId) -> &Arc<LocalSpec> {
        &self.locals[id.index()]
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn find(&self, spec: &PodSpec) -> Option<ClassId> {
        self.by_spec.get(spec).copied()
    }

    pub(super) fn local_class(&mut self, local: &Arc<LocalSpec>) -> LocalClassId {
        if let Some(id) = self.by_local.get(local) {
            return *id;
        }
        let id = LocalClassId::from_index(self.locals.len());
        self.locals.push(Arc::clone(local));
        self.by_local.insert(Arc::clone(local), id);
        id
    }

    pub(super) fn add(
        &mut self,
        spec: Arc<PodSpec>,
        local: LocalClassId,
        labels: [LabelClassId; 2],
        owned: Box<[(TallyId, i32)]>,
    ) -> ClassId {
        let id = ClassId::from_index(self.list.len());
        self.by_spec.insert(Arc::clone(&spec), id);
        self.list.push(Class {
            spec,
            local,
            live: labels[0],
            terminating: labels[1],
            owned,
            pods: 0,
        });
        self.idle += 1;
        id
    }

    pub(super) fn join(&mut self, id: ClassId) {
        let class = &mut self.list[id.index()];
        if class.pods == 0 {
            self.idle -= 1;
        }
        class.pods += 1;
    }

    pub(super) fn part(&mut self, id: ClassId) {
        let class = &mut self.list[id.index()];
        class.pods -= 1;
        if class.pods == 0 {
            self.idle += 1;
        }
    }

    /// Most of the table is of no use any more.
    pub(super) fn is_worth_rebuilding(&self) -> bool {
        self.idle > 1024 && self.idle > self.list.len() / 2
    }
}
