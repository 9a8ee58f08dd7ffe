//! An image made here: one layer with a static busybox. No registry is asked.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::tar::Archive;

/// What containers of the image are told to be; a name that no registry has.
pub const NAME: &str = "registry.test/plimsoll/busybox:1";
const BUSYBOX: &str = "/bin/busybox";

/// The root file system as a tar archive.
pub fn layer() -> Result<Vec<u8>> {
    let busybox = std::fs::read(BUSYBOX).with_context(|| format!("read {BUSYBOX}"))?;
    let mut layer = Archive::default();
    for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        layer.directory(directory)?;
    }
    layer.file("bin/busybox", 0o755, &busybox)?;
    for name in ["sh", "sleep", "cat", "sync"] {
        layer.link(&format!("bin/{name}"), "busybox")?;
    }
    layer.file("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n")?;
    Ok(layer.finish())
}

/// An OCI layout as a tar archive, under the given names.
pub fn oci_archive(names: &[&str]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["blobs", "blobs/sha256"] {
        archive.directory(directory)?;
    }
    let layer = layer()?;
    let layer_digest = sha256(&layer);
    archive.file(&format!("blobs/sha256/{layer_digest}"), 0o644, &layer)?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        // It is the pause image, too: it has to stay alive without being told what to do.
        "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
    });
    let config = blob(
        &mut archive,
        "application/vnd.oci.image.config.v1+json",
        &config,
    )?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": format!("sha256:{layer_digest}"),
            "size": layer.len(),
        }],
    });
    let manifest = blob(
        &mut archive,
        "application/vnd.oci.image.manifest.v1+json",
        &manifest,
    )?;
    let manifests: Vec<Value> = names
        .iter()
        .map(|name| {
            let mut entry = manifest.clone();
            entry["annotations"] = json!({
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": name,
            });
            entry
        })
        .collect();
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    archive.file("index.json", 0o644, index.to_string().as_bytes())?;
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(archive.finish())
}

/// Stores a document under its digest and gives its descriptor.
fn blob(archive: &mut Archive, media_type: &str, document: &Value) -> Result<Value> {
    let bytes = document.to_string().into_bytes();
    let digest = sha256(&bytes);
    archive.file(&format!("blobs/sha256/{digest}"), 0o644, &bytes)?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The name that images use for this machine.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_nothing() {
        assert_eq!(
            sha256(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
