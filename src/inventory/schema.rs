//! Which keys there are, and which of them this version has: the one table that the checks, the hints and the reference file share.

/// The keys of one mapping.
#[derive(Debug)]
pub(super) struct KeySchema {
    /// Where it stands: `container`.
    pub(super) path: &'static str,
    /// With commas between them.
    keys: &'static str,
    /// Those of a later version, which this one does not have.
    planned: &'static str,
}

impl KeySchema {
    pub(super) const fn new(path: &'static str, keys: &'static str) -> Self {
        KeySchema { path, keys, planned: "" }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.keys.split(',')
    }

    pub(super) fn planned(&self) -> impl Iterator<Item = &'static str> {
        self.planned.split(',').filter(|key| !key.is_empty())
    }
}

pub(super) const ROOT_SCHEMA: KeySchema = KeySchema {
    planned: "spares,lease",
    ..KeySchema::new(
        "",
        "name,vars,hosts,master,ssh,run_dir,logs,container,workdir,env,secrets,prepare,launch,constraints,\
         checks,lints,metrics,diagnosis,on_failure,teardown,slurm",
    )
};
pub(super) const HOST_SCHEMA: KeySchema = KeySchema::new("hosts[]", "name,address,fabric_address,gpus,env,ssh,container,workdir");
pub(super) const SSH_SCHEMA: KeySchema =
    KeySchema::new("ssh", "user,port,identity,config,known_hosts,jump,password,host_keys,connect_timeout,keepalive,give_up,become");
pub(super) const CONTAINER_SCHEMA: KeySchema =
    KeySchema::new("container", "engine,host,image,pull,registry,gpus,network,user,entrypoint,shm_size,mounts,env,args");
pub(super) const MOUNT_SCHEMA: KeySchema = KeySchema::new("container.mounts[]", "from,to,read_only,create");
pub(super) const REGISTRY_SCHEMA: KeySchema = KeySchema::new("container.registry", "server,username,password");
pub(super) const CHECKS_SCHEMA: KeySchema = KeySchema::new("checks", "same,paths,max_clock_skew,skip");
pub(super) const LOGS_SCHEMA: KeySchema = KeySchema::new("logs", "max");
pub(super) const ON_FAILURE_SCHEMA: KeySchema =
    KeySchema { planned: "restarts,replace_hosts", ..KeySchema::new("on_failure", "hang,hang_after") };
pub(super) const TASK_SCHEMA: KeySchema = KeySchema::new(
    "prepare[]",
    "name,run,sync,copy,hosts,in,chdir,env,creates,unless,changed,timeout,retries,delay,become,once,register,tags",
);
pub(super) const SYNC_SCHEMA: KeySchema = KeySchema::new("prepare[].sync", "from,to,exclude,delete");
pub(super) const COPY_SCHEMA: KeySchema = KeySchema::new("prepare[].copy", "from,to,mode");
pub(super) const LAUNCH_SCHEMA: KeySchema = KeySchema::new(
    "launch",
    "with,nproc_per_node,master_port,rendezvous,command,shell,args,setup,python,gpu_visibility,\
     max_restarts,min_nodes,start,gate,master_timeout,ready_when,stop_grace",
);
pub(super) const SLURM_SCHEMA: KeySchema =
    KeySchema::new("slurm", "login,nodes,gpus_per_node,partition,time,cpus_per_task,container,image,secrets,args,requeue");

/// The known word nearest to `word`, where one is near enough to be meant.
pub(crate) fn nearest_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase().replace('-', "_");
    let allowed = (lower.chars().count() / 3).max(1);
    let near = |known: &&str| strsim::osa_distance(&lower, &known.to_lowercase().replace('-', "_"));
    known.into_iter().filter(|known| known.len() <= 64).min_by_key(near).filter(|found| near(found) <= allowed)
}

/// A hint that names the known word which was probably meant, or `otherwise`.
pub(super) fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    nearest_word(word, known).map_or_else(|| otherwise.to_owned(), |near| format!("did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_suggests_only_close_words() {
        assert_eq!(nearest_word("nproc_per_nod", LAUNCH_SCHEMA.keys()), Some("nproc_per_node"));
        assert_eq!(nearest_word("nproc-per-node", LAUNCH_SCHEMA.keys()), Some("nproc_per_node"));
        assert_eq!(nearest_word("comand", LAUNCH_SCHEMA.keys()), Some("command"));
        assert_eq!(nearest_word("wiht", LAUNCH_SCHEMA.keys()), Some("with"));
        assert_eq!(nearest_word("volumes", LAUNCH_SCHEMA.keys()), None);
    }
}
