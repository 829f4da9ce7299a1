//! The launchers: what `launch.with` and `launch.rendezvous` may be.

use super::errors::InventoryErrors;
use super::yaml_tree::YamlNode;

/// `launch.with`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// One torchrun a host.
    Torchrun(Rendezvous),
    /// One `accelerate launch` a host.
    Accelerate,
    /// One launcher for DeepSpeed a host.
    Deepspeed(DeepspeedLauncher),
    /// One process a GPU.
    Processes,
    /// One process a host.
    Script,
}

impl Launcher {
    /// Every launcher, each with its default rendezvous.
    pub const ALL: [Launcher; 5] = [
        Launcher::Torchrun(Rendezvous::Static),
        Launcher::Accelerate,
        Launcher::Deepspeed(DeepspeedLauncher::Torchrun(Rendezvous::Static)),
        Launcher::Processes,
        Launcher::Script,
    ];

    /// Its word in `launch.with`.
    pub fn as_str(self) -> &'static str {
        match self {
            Launcher::Torchrun(_) => "torchrun",
            Launcher::Accelerate => "accelerate",
            Launcher::Deepspeed(_) => "deepspeed",
            Launcher::Processes => "processes",
            Launcher::Script => "script",
        }
    }

    /// Whether the rendezvous, and not the inventory, assigns the ranks.
    pub fn has_dynamic_ranks(self) -> bool {
        matches!(self, Launcher::Torchrun(Rendezvous::C10d) | Launcher::Deepspeed(DeepspeedLauncher::Torchrun(Rendezvous::C10d)))
    }

    /// `launch.with` and `launch.rendezvous`, evaluated.
    pub(super) fn parse(with: Option<&YamlNode>, rendezvous: Option<&YamlNode>, errors: &mut InventoryErrors) -> Launcher {
        let [torchrun, ..] = Launcher::ALL;
        let launcher = errors.choose(with, &Launcher::ALL.map(|launcher| (launcher.as_str(), launcher)), torchrun);
        match (launcher, rendezvous) {
            (Launcher::Torchrun(_), _) => {
                let words = [("static", Rendezvous::Static), ("c10d", Rendezvous::C10d)];
                Launcher::Torchrun(errors.choose(rendezvous, &words, Rendezvous::Static))
            }
            (Launcher::Deepspeed(default), _) => {
                let c10d = DeepspeedLauncher::Torchrun(Rendezvous::C10d);
                let words = [("static", default), ("c10d", c10d), ("hostfile", DeepspeedLauncher::Hostfile)];
                Launcher::Deepspeed(errors.choose(rendezvous, &words, default))
            }
            (Launcher::Accelerate, Some(node)) if node.as_text() != Some("static") => {
                errors.report(&node.location, "accelerate only supports the static rendezvous", "remove it, or set with: torchrun");
                launcher
            }
            (Launcher::Processes | Launcher::Script, Some(node)) => {
                errors.report(&node.location, "only torchrun has a rendezvous setting", "remove it, or set with: torchrun");
                launcher
            }
            (Launcher::Accelerate | Launcher::Processes | Launcher::Script, _) => launcher,
        }
    }
}

/// The program that starts the workers of a DeepSpeed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeepspeedLauncher {
    /// `python -m torch.distributed.run`.
    Torchrun(Rendezvous),
    /// `deepspeed --hostfile … --no_ssh`, one a host.
    Hostfile,
}

/// `launch.rendezvous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rendezvous {
    /// Node ranks are given; rank 0 is on the master.
    Static,
    /// The c10d store hands out ranks.
    C10d,
}
