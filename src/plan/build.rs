//! From inventory, job and facts to the plan of a launch: the few lines that say what a launch is.

use crate::inventory::{Become, Gate, Gpus, Host, Inventory, Job, Start, Teardown};
use crate::plan::Plan;
use crate::plan::action::{Action, Trouble, container, launch, preflight, prepare, prove, pull};
use crate::plan::facts::HostFacts;
use crate::plan::launcher;
use crate::plan::run::{RunFile, RunHost, hash};
use crate::plan::site::Site;
use crate::plan::words::Phase;
use crate::plan::world::{World, fabric_address, given_gpus};

/// What is decided outside: who launches, under which id.
#[derive(Debug, Clone, Default)]
pub struct Ids {
    /// The run's id.
    pub run: String,
    /// The lock's token; `None` in a plan that is only shown.
    pub token: Option<String>,
    /// `user@laptop`.
    pub owner: String,
    /// RFC 3339.
    pub started: String,
    /// Whether fitting containers are replaced all the same.
    pub recreate: bool,
}

/// Everything that a launch is made of.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Who the hosts are.
    pub inventory: &'a Inventory,
    /// What they do.
    pub job: &'a Job,
    /// What they are.
    pub facts: &'a [HostFacts],
    /// Container and launch text of each host, what "equal" is decided by.
    pub texts: &'a [(String, String)],
    /// Ids.
    pub ids: &'a Ids,
    /// Names and values.
    pub secrets: &'a [(String, String)],
}

/// The site of one host of an inventory. `contained`: what the inventory says.
pub fn site(inventory: &Inventory, host: &Host, base: &str, run: &str, token: Option<String>) -> Site {
    Site {
        name: inventory.name.clone(),
        host: host.name.clone(),
        run: run.to_owned(),
        base: base.to_owned(),
        sudo: host.ssh.r#become == Become::Sudo,
        engine: inventory.engine.as_ref().and_then(|e| e.host.clone()),
        contained: inventory.engine.is_some(),
        token,
    }
}

/// The fabric address of every host, or what is wrong with each that has none.
///
/// # Errors
/// The hosts whose address cannot be told, with the remedy.
pub fn addresses(inventory: &Inventory, facts: &[HostFacts]) -> Result<Vec<String>, Vec<(usize, Trouble)>> {
    let mut troubles = Vec::new();
    let mut found = Vec::new();
    for (index, (host, facts)) in inventory.hosts.iter().zip(facts).enumerate() {
        match fabric_address(host, facts) {
            Ok(address) => found.push(address),
            Err(what) => troubles.push((index, Trouble::new(what, "set fabric_address to the one that ranks shall use"))),
        }
    }
    if troubles.is_empty() { Ok(found) } else { Err(troubles) }
}

/// The container hash of a host: its text and the keeper that would run in it.
pub fn container_hash(text: &str) -> String {
    hash(&format!("{text}\n{}", include_str!("../../assets/keeper.sh")))
}

/// The whole launch.
///
/// # Errors
/// The hosts that cannot take part, with the remedy.
pub fn launch(terms: Terms<'_>) -> Result<Plan, Vec<(usize, Trouble)>> {
    let Terms { inventory, job, facts, ids, .. } = terms;
    let addresses = addresses(inventory, facts)?;
    let world = World::new(job, addresses, job.launch.master_port.unwrap_or(29500));
    let sites: Vec<Site> = (inventory.hosts.iter().zip(facts))
        .enumerate()
        .map(|(i, (host, facts))| {
            let mut site = site(inventory, host, &facts.run_dir, &ids.run, ids.token.clone());
            site.contained = job.hosts.get(i).is_some_and(|h| h.container.is_some());
            site
        })
        .collect();
    let mut plan = Plan::empty(sites);
    plan.ranks = world.ranks();
    plan.world_size = world.size();
    let names: Vec<String> = inventory.hosts.iter().map(|h| h.name.clone()).collect();
    let cells: Vec<Cell<'_>> =
        (0..plan.sites.len()).map(|host| Cell { terms, world: &world, site: plan.sites[host].clone(), host }).collect();
    let files: Vec<RunFile> = cells.iter().map(|c| c.run_file(&plan)).collect();
    plan.run = files.first().cloned();
    for phase in [Phase::Preflight, Phase::Pull, Phase::Container, Phase::Prove, Phase::Master, Phase::Workers] {
        for (cell, file) in cells.iter().zip(&files) {
            for action in cell.actions(phase, file, &names) {
                plan.push(cell.host, phase, action);
            }
        }
    }
    Ok(plan)
}

/// One host's column of the matrix.
struct Cell<'a> {
    terms: Terms<'a>,
    world: &'a World,
    site: Site,
    host: usize,
}

impl Cell<'_> {
    fn master_first(&self) -> bool {
        self.terms.job.launch.start == Start::MasterFirst
    }

    fn actions(&self, phase: Phase, file: &RunFile, names: &[String]) -> Vec<Action> {
        let job = self.terms.job;
        match phase {
            Phase::Preflight => self.preflight(),
            Phase::Pull => self
                .part()
                .and_then(|p| p.container.as_ref())
                .map_or(Vec::new(), |c| vec![Action::Pull(pull::Pull { site: self.site.clone(), image: c.image.clone(), when: c.pull })]),
            Phase::Container => vec![self.prepare(file, names), self.container()],
            Phase::Prove => vec![self.prove(names)],
            Phase::Master if self.host == 0 && self.master_first() => {
                let mut actions = vec![self.launch()];
                if job.launch.gate == Gate::Port && self.terms.inventory.hosts.len() > 1 {
                    let timeout = job.launch.master_timeout;
                    actions.push(Action::Gate(launch::Gate { site: self.site.clone(), port: self.world.port, timeout }));
                }
                actions
            }
            Phase::Workers if self.host > 0 || !self.master_first() => vec![self.launch()],
            _ => Vec::new(),
        }
    }

    fn part(&self) -> Option<&crate::inventory::JobHost> {
        self.terms.job.hosts.get(self.host)
    }

    fn facts(&self) -> Option<&HostFacts> {
        self.terms.facts.get(self.host)
    }

    fn gpus_wanted(&self) -> u32 {
        let job = self.terms.job;
        job.nproc_per_node
            .unwrap_or_else(|| self.terms.inventory.hosts.get(self.host).zip(self.facts()).map_or(0, |(h, f)| given_gpus(h, f)))
    }

    fn preflight(&self) -> Vec<Action> {
        let host_gpus = self.terms.inventory.hosts.get(self.host).map(|h| h.gpus.clone()).unwrap_or_default();
        let mut actions = vec![Action::Check(preflight::Check {
            site: self.site.clone(),
            container: self.part().and_then(|p| p.container.clone()),
            gpus: host_gpus,
            nproc: self.gpus_wanted(),
            port: (self.host == 0).then_some(self.world.port),
        })];
        if self.host > 0 {
            actions.push(Action::Reach(preflight::Reach { address: self.world.master().to_owned(), port: self.world.port }));
        }
        actions
    }

    fn prepare(&self, file: &RunFile, names: &[String]) -> Action {
        let job = self.terms.job;
        let mut start = launcher::start(job, self.world, &self.site, self.host, names);
        // In a container `--gpus` decides; on a bare host only this keeps a run on the GPUs that it may use.
        if let (false, Some(Gpus::List(list))) = (self.site.contained, self.terms.inventory.hosts.get(self.host).map(|h| &h.gpus)) {
            let visible = list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            start.env.entry("CUDA_VISIBLE_DEVICES".to_owned()).or_insert(visible);
        }
        Action::Prepare(prepare::Prepare {
            site: self.site.clone(),
            start,
            run: file.clone(),
            start_timeout: job.launch.master_timeout.as_secs() + 60,
            keep: job.teardown != Teardown::Always,
        })
    }

    fn container(&self) -> Action {
        let spec = self.part().and_then(|p| p.container.clone());
        let host_gpus = self.terms.inventory.hosts.get(self.host).map(|h| h.gpus.clone()).unwrap_or_default();
        let text = self.terms.texts.get(self.host).map_or("", |t| t.0.as_str());
        let idle = self.facts().and_then(HostFacts::idle_gpus);
        Action::Container(container::Container {
            site: self.site.clone(),
            gpus: spec.as_ref().and_then(|s| container::gpus_flag(&s.gpus, &host_gpus, idle.as_deref())),
            spec,
            hash: container_hash(text),
            owner: self.terms.ids.owner.clone(),
            stop_grace: self.terms.job.launch.stop_grace.as_secs(),
            me: self.facts().map_or_else(String::new, |f| format!("{}:{}", f.uid, f.gid)),
            home: self.facts().map_or_else(String::new, |f| f.home.clone()),
            recreate: self.terms.ids.recreate,
        })
    }

    fn prove(&self, names: &[String]) -> Action {
        let job = self.terms.job;
        let start = launcher::start(job, self.world, &self.site, self.host, names);
        let contained_gpus =
            self.part().and_then(|p| p.container.as_ref()).is_some_and(|c| c.gpus != crate::inventory::ContainerGpus::None);
        Action::Prove(prove::Prove {
            site: self.site.clone(),
            needs: start.needs,
            gpus: if contained_gpus { self.gpus_wanted() } else { 0 },
            workdir: self.part().and_then(|p| p.workdir.clone()),
        })
    }

    fn launch(&self) -> Action {
        Action::Launch(launch::Launch { site: self.site.clone(), secrets: self.terms.secrets.to_vec() })
    }

    fn run_file(&self, plan: &Plan) -> RunFile {
        let Terms { inventory, job, ids, .. } = self.terms;
        let (container_text, launch_text) = self.terms.texts.get(self.host).cloned().unwrap_or_default();
        RunFile {
            run: ids.run.clone(),
            name: inventory.name.clone(),
            owner: ids.owner.clone(),
            started: ids.started.clone(),
            hosts: inventory.hosts.iter().zip(&self.world.addresses).map(|(h, fabric)| run_host(h, fabric)).collect(),
            ranks: plan.ranks.clone(),
            world_size: plan.world_size,
            contained: self.site.contained,
            ready_when: job.launch.ready_when.clone(),
            stop_grace: job.launch.stop_grace.as_secs(),
            teardown: match job.teardown {
                Teardown::Always => "always",
                Teardown::OnSuccess => "on-success",
                Teardown::Never => "never",
            }
            .to_owned(),
            container_text,
            launch_text,
        }
    }
}

fn run_host(host: &Host, fabric: &str) -> RunHost {
    RunHost {
        name: host.name.clone(),
        address: host.address.clone(),
        user: host.ssh.user.clone(),
        port: host.ssh.port,
        jump: host.ssh.jump.clone(),
        sudo: host.ssh.r#become == Become::Sudo,
        fabric: fabric.to_owned(),
    }
}

/// What the facts script is asked on each host for this job.
pub fn wanted(inventory: &Inventory, job: Option<&Job>, host: usize) -> crate::plan::facts::Wanted {
    let part = job.and_then(|j| j.hosts.get(host));
    let container = part.and_then(|p| p.container.as_ref());
    crate::plan::facts::Wanted {
        docker: inventory.engine.is_some(),
        image: container.map(|c| c.image.clone()),
        mounts: container.map_or(Vec::new(), |c| c.mounts.iter().filter(|m| !m.create).map(|m| m.from.clone()).collect()),
        idle: container.is_some_and(|c| matches!(c.gpus, crate::inventory::ContainerGpus::Count(_))),
        ports: match job {
            Some(job) if host == 0 => job.launch.master_port.into_iter().collect(),
            _ => Vec::new(),
        },
    }
}
