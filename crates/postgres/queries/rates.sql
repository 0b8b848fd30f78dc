SELECT queue, spent FROM rates WHERE queue = ANY ($1::integer[])
