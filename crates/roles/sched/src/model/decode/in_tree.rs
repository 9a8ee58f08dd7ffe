//! Volumes of kinds that were once built in.

use serde::Deserialize;

use super::meta::Strings;
use crate::model::migration::InTree;
use crate::model::objects::InTreeVolume;
use crate::model::selector::{NodeSelector, NodeTerm, Operator, Requirement};
use crate::model::symbol::Names;

/// Each kind has a name of its own for what tells its volumes apart.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireDisk {
    #[serde(rename = "volumeID")]
    volume_id: String,
    pd_name: String,
    #[serde(rename = "diskURI")]
    disk_uri: String,
    share_name: String,
    volume_path: String,
}

pub fn volume(
    kind: &'static InTree,
    disk: &WireDisk,
    terms: Option<&[NodeTerm]>,
    labels: Option<&Strings>,
    names: &mut Names,
) -> InTreeVolume {
    let names_of_it = [
        &disk.volume_id,
        &disk.pd_name,
        &disk.disk_uri,
        &disk.share_name,
        &disk.volume_path,
    ];
    let handle = names_of_it.into_iter().find(|name| !name.is_empty());
    InTreeVolume {
        kind,
        handle: handle.map_or("", String::as_str).into(),
        nodes: NodeSelector {
            labels: Box::default(),
            terms: translated(terms, &zones(labels), kind, names),
        },
    }
}

/// Those of the label, of which there may be several.
fn zones(labels: Option<&Strings>) -> Vec<String> {
    let label = labels.and_then(|labels| {
        let beta = labels.get("failure-domain.beta.kubernetes.io/zone");
        labels.get("topology.kubernetes.io/zone").or(beta)
    });
    let zones = label.into_iter().flat_map(|zones| zones.split("__"));
    zones.map(str::to_owned).collect()
}

/// With the driver's label for zones instead of the general one. Zones that only the volume's label names are added.
fn translated(
    terms: Option<&[NodeTerm]>,
    zones: &[String],
    kind: &InTree,
    names: &mut Names,
) -> Option<Box<[NodeTerm]>> {
    let Some(label) = kind.zone_label.map(|label| names.intern(label)) else {
        return terms.map(Into::into);
    };
    let general = [names.known.zone, names.known.zone_beta];
    let mut terms: Vec<NodeTerm> = terms.unwrap_or_default().to_vec();
    let mut replaced = false;
    for expression in terms.iter_mut().flat_map(|term| &mut term.expressions) {
        if general.contains(&expression.key) {
            expression.key = label;
            replaced = true;
        }
    }
    if !replaced && !zones.is_empty() {
        let requirement = Requirement {
            key: label,
            operator: Operator::In,
            values: zones.iter().map(|zone| names.intern(zone)).collect(),
        };
        if terms.is_empty() {
            terms.push(NodeTerm::default());
        }
        for term in &mut terms {
            let mut expressions = term.expressions.to_vec();
            expressions.push(requirement.clone());
            term.expressions = expressions.into();
        }
    }
    (!terms.is_empty()).then(|| terms.into())
}
