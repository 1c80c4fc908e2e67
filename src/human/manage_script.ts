/**
 * The script that installs, upgrades and removes the service of a bridge, and prints the launcher: a
 * few lines that a person can read. The init script leaves it in the root.
 *
 * An upgrade changes nothing until the new executable accepts the policy, and goes back to the old
 * one when nobody trusts the new one.
 *
 * @module
 */

/** The whole script. */
export const MANAGE_SCRIPT = `#!/bin/sh
# The service of this bridge:  sh manage.sh install | upgrade FILE | uninstall | launcher
# As root for the system's service manager, which serves as the owner of state/; else for your own.
set -eu
cd "$(dirname "$0")"
root=$(pwd -P)
owner=$(stat -c %u state)
if [ "$(id -u)" = 0 ]; then
  user= units=/etc/systemd/system
else
  user=--user units=\${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
fi
units=\${CHB_UNITS:-$units}
# The files in state/ belong to the daemon's user, whoever runs this.
own() {
  if [ "$owner" = "$(id -u)" ]; then "$@"
  else setpriv "--reuid=$owner" "--regid=$(stat -c %g state)" --clear-groups "$@"; fi
}
unit() {
  mkdir -p "$units"
  own ./bin/chb unit $user > "$units/.$name.new"
  mv "$units/.$name.new" "$units/$name.service"
  systemctl $user daemon-reload
}
name=chb-$(basename "$root" | tr -cs 'A-Za-z0-9_\\n-' -)

case \${1:-} in
  install)
    own ./bin/chb check
    own ./bin/chb trust                       # shows the policy, and asks
    unit
    systemctl $user enable --now "$name" ;;
  upgrade)
    cp -- "$2" bin/.chb.new
    chmod 0555 bin/.chb.new
    own ./bin/.chb.new check                  # does it fit the policy? nothing has changed yet
    systemctl $user stop "$name"              # running commands go on
    mv bin/chb bin/.chb.old
    mv bin/.chb.new bin/chb
    unit
    if ! own ./bin/chb trust; then            # the old one again
      mv bin/.chb.old bin/chb
      unit
      systemctl $user start "$name"
      exit 77
    fi
    systemctl $user start "$name"
    rm -f bin/.chb.old ;;
  uninstall)
    systemctl $user disable --now "$name"
    rm -f "$units/$name.service"
    systemctl $user daemon-reload
    echo "The bridge itself is still in $root" ;;
  launcher)                                   # for a place on your PATH
    cat <<CHB_LAUNCHER
#!/bin/sh
d='$root'; while :; do [ -z "\\$(find "\\$d" -maxdepth 0 \\( -perm -002 ! -perm -1000 -o ! -user 0 ! -user $owner \\))" ] || { echo "chb: others can change \\$d" >&2; exit 78; }; [ "\\$d" = / ] && break; d=\\$(dirname "\\$d"); done
cd '$root' && exec ./bin/chb "\\$@"
CHB_LAUNCHER
    ;;
  *)
    echo "usage: sh manage.sh install | upgrade FILE | uninstall | launcher" >&2
    exit 64 ;;
esac
`;
