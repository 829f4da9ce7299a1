//! The image: there, or pulled.

use std::time::Duration;

use crate::inventory;
use crate::plan::action::{Seen, Verdict};
use crate::plan::facts::HostFacts;
use crate::plan::site::Site;
use crate::shell::{Command, Output, quote};

/// How long a pull may take: tens of gigabytes from a private registry.
const DEADLINE: Duration = Duration::from_secs(2 * 3600);

/// Gets the image where it is not there.
#[derive(Debug, Clone)]
pub struct Pull {
    /// Where.
    pub site: Site,
    /// Image reference.
    pub image: String,
    /// When.
    pub when: inventory::Pull,
}

impl Pull {
    pub(super) fn observe(&self, facts: &HostFacts) -> Seen {
        match (self.when, &facts.image) {
            (inventory::Pull::Always, _) => Seen::Needed("always".to_owned()),
            (_, Some(id)) => Seen::Satisfied(short(id)),
            (inventory::Pull::Missing, None) => Seen::Needed("the image is not there".to_owned()),
            (inventory::Pull::Never, None) => Seen::Impossible(vec![super::Trouble::new(
                format!("the image {} is not on {}", self.image, self.site.host),
                "load it there, or set container.pull: missing",
            )]),
        }
    }

    pub(super) fn command(&self) -> Command {
        let image = quote(&self.image);
        Command::sh(
            "pull the image",
            format!("{}D pull -q {image} >&2 || exit 77\nD image inspect --format '{{{{.Id}}}}' {image}\n", self.site.guard()),
            DEADLINE,
        )
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        if output.ok() {
            return Verdict::changed(short(output.text().trim()));
        }
        let says = output.complaint();
        let hint = if says.contains("no space left") {
            format!("free space on {}: `docker system df` shows what docker uses", self.site.host)
        } else if says.contains("denied") || says.contains("unauthorized") || says.contains("authentication") {
            format!("log in on {} with `docker login`, or check the image's name", self.site.host)
        } else if says.contains("http: server gave HTTP response") || says.contains("certificate") {
            format!("add the registry to insecure-registries in /etc/docker/daemon.json on {}", self.site.host)
        } else {
            format!("check the image's name and that {} reaches its registry, or load the image there", self.site.host)
        };
        Verdict::failed(format!("could not pull {}: {says}", self.image), hint)
    }
}

/// The first 12 digits of an image id, as docker shows it.
pub fn short(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(12).collect()
}
