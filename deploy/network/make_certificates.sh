#!/usr/bin/env bash
# Makes an authority for one cluster, and a certificate of it for its machines, in the folder that is given.
#   deploy/network/make_certificates.sh FOLDER [DAYS=30]
# Copy ca.pem, task.pem and task.key to each machine. Whoever has task.key is a member of the cluster; ca.key makes more
# members, and is needed no more once they are made.
set -euo pipefail
folder=$1 days=${2:-30}
umask 077
mkdir -p "$folder"
cd "$folder"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days "$days" -subj "/CN=ps_train cluster" \
  -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -subj "/CN=ps_train task" \
  -keyout task.key -out task.csr
openssl x509 -req -in task.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days "$days" -out task.pem
rm task.csr
